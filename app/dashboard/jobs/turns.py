"""Turns of sessions at what one process does once at a time: computing and drawing.

What a first answer waits for comes before the rest, and what is short before what has proved long;
else sessions come in the order in which they asked. Long work gives way to short work at times.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from heapq import heapify, heappop, heappush
from itertools import count
from threading import Condition

_LOOK_EVERY_S = 0.1
_LONG_S = 0.25
"""Work that has lasted as long is long."""

Place = tuple["Rank", bool, int]
"""The order of waiting sessions: rank, whether the work is long, number."""


class Rank(IntEnum):
    """What comes first."""

    FIRST_ANSWER = 0
    REST_OF_PAGE = 1


class Turns:
    """The session that has the turn, and the sessions that wait for it."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._waiting: list[Place] = []
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

    def number(self) -> int:
        """Return the number of one more that asks."""
        return next(self._numbers)

    def ask(self, place: Place) -> None:
        """Wait at a place."""
        with self._changed:
            heappush(self._waiting, place)

    def await_place(self, place: Place) -> bool:
        """Wait a moment; return whether the turn has come."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_next(place), _LOOK_EVERY_S):
                return False
            heappop(self._waiting)
            self._is_taken = True
            return True

    def give_up(self, place: Place) -> None:
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

    def is_awaited(self, place: Place) -> bool:
        """Return whether some wait at a place before this one."""
        with self._changed:
            return bool(self._waiting) and self._waiting[0] < place

    def _is_next(self, place: Place) -> bool:
        return not self._is_taken and self._waiting[0] == place


class Turn:
    """The turn of one session, which it may hold or wait for."""

    def __init__(self, turns: Turns, rank: Rank, still_wanted: Callable[[], None]) -> None:
        self._turns, self._still_wanted = turns, still_wanted
        self._place: Place = rank, False, turns.number()
        self._is_held = False
        self._begun_s = 0.0

    def begin(self) -> None:
        """Wait for the turn."""
        self._turns.ask(self._place)
        try:
            while not self._turns.await_place(self._place):
                self._still_wanted()
        except BaseException:
            self._turns.give_up(self._place)
            raise
        self._is_held = True
        self._begun_s = time.monotonic()

    def give_way(self) -> None:
        """Let the sessions before this one have their turns, then go on.

        Work that has proved long lets all short work go first.
        """
        self._still_wanted()
        rank, is_long, number = self._place
        is_long = is_long or time.monotonic() - self._begun_s > _LONG_S
        self._place = rank, is_long, number
        if self._turns.is_awaited(self._place):
            self.end()
            self.begin()

    def end(self) -> None:
        """Let the next have the turn, where it is held."""
        if self._is_held:
            self._is_held = False
            self._turns.free()
