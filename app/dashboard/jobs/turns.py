"""Turns of sessions at what one process does once at a time: computing and drawing.

What a first answer waits for comes before the rest; within a rank, sessions come in the order
in which they asked. Long work gives way at times and asks again, so that it delays no short work.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from heapq import heapify, heappop, heappush
from itertools import count
from threading import Condition

_LOOK_EVERY_S = 0.1


class Rank(IntEnum):
    """What comes first."""

    FIRST_ANSWER = 0
    REST_OF_PAGE = 1


class Turns:
    """Who has the turn, and who waits for it."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._waiting: list[tuple[Rank, int]] = []
        self._numbers = count()
        self._is_taken = False

    @contextmanager
    def turn(self, rank: Rank, still_wanted: Callable[[], None]) -> Iterator["Turn"]:
        """Wait for a turn, and end it with the block.

        ``still_wanted`` is called while it waits; what it raises gives the place up. A thread that
        has a turn must not ask for another.
        """
        turn = Turn(self, rank, still_wanted)
        turn.begin()
        try:
            yield turn
        finally:
            turn.end()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def ask(self, rank: Rank) -> tuple[Rank, int]:
        """Return the place of one more that waits."""
        with self._changed:
            place = rank, next(self._numbers)
            heappush(self._waiting, place)
            return place

    def await_place(self, place: tuple[Rank, int]) -> bool:
        """Wait a moment; return whether the turn has come."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_next(place), _LOOK_EVERY_S):
                return False
            heappop(self._waiting)
            self._is_taken = True
            return True

    def give_up(self, place: tuple[Rank, int]) -> None:
        """Wait no longer."""
        with self._changed:
            self._waiting.remove(place)
            heapify(self._waiting)
            self._changed.notify_all()

    def free(self) -> None:
        """Let the next have the turn."""
        with self._changed:
            self._is_taken = False
            self._changed.notify_all()

    def is_awaited(self, rank: Rank) -> bool:
        """Return whether some wait at this rank or before."""
        with self._changed:
            return bool(self._waiting) and self._waiting[0][0] <= rank

    def _is_next(self, place: tuple[Rank, int]) -> bool:
        return not self._is_taken and self._waiting[0] == place


class Turn:
    """The turn of one session, which it may hold or wait for."""

    def __init__(self, turns: Turns, rank: Rank, still_wanted: Callable[[], None]) -> None:
        self._turns, self._rank, self._still_wanted = turns, rank, still_wanted
        self._is_held = False

    def begin(self) -> None:
        """Wait for the turn."""
        place = self._turns.ask(self._rank)
        try:
            while not self._turns.await_place(place):
                self._still_wanted()
        except BaseException:
            self._turns.give_up(place)
            raise
        self._is_held = True

    def give_way(self) -> None:
        """Let others at this rank or before have their turns, then go on."""
        self._still_wanted()
        if self._turns.is_awaited(self._rank):
            self.end()
            self.begin()

    def end(self) -> None:
        """Let the next have the turn, where it is held."""
        if self._is_held:
            self._is_held = False
            self._turns.free()
