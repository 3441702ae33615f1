"""The lock under which sessions compute and draw, one at a time in one process.

What a first answer waits for comes before the rest, and what is short before what has proved long;
else sessions come in the order in which they asked. Long work gives way to short work at times.
"""

import time
from bisect import insort
from collections.abc import Callable
from enum import IntEnum
from itertools import count
from threading import Condition

_LOOK_EVERY_S = 0.1
# Work that has lasted as long is long.
_LONG_S = 0.25

# The order of waiting sessions: rank, whether the work is long, number.
Place = tuple["Rank", bool, int]


class Rank(IntEnum):
    """What comes first."""

    FIRST_ANSWER = 0
    REST_OF_PAGE = 1


class PriorityLock:
    """A lock that goes to the first of the sessions that wait for it."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._waiting: list[Place] = []
        self._numbers = count()
        self._is_taken = False

    def turn(self, rank: Rank, still_wanted: Callable[[], None]) -> "Turn":
        """Return a turn with the lock, which lasts for a ``with`` block.

        ``still_wanted`` is called while it waits; what it raises gives the place up. A thread that
        has a turn must not ask for another.
        """
        return Turn(self, (rank, False, next(self._numbers)), still_wanted)

    def acquire(self, place: Place, still_wanted: Callable[[], None]) -> None:
        """Wait at a place."""
        with self._changed:
            insort(self._waiting, place)
        try:
            while not self._is_taken_by(place):
                still_wanted()
        except BaseException:
            with self._changed:
                self._waiting.remove(place)
                self._changed.notify_all()
            raise

    def release(self) -> None:
        """Let the next have the lock."""
        with self._changed:
            self._is_taken = False
            self._changed.notify_all()

    def is_awaited(self, place: Place) -> bool:
        """Return whether some wait at a place before this one."""
        with self._changed:
            return bool(self._waiting) and self._waiting[0] < place

    def _is_taken_by(self, place: Place) -> bool:
        """Wait a moment; return whether the turn of the place has come."""
        with self._changed:
            is_next = self._changed.wait_for(
                lambda: not self._is_taken and self._waiting[0] == place, _LOOK_EVERY_S
            )
            if is_next:
                self._is_taken = True
                del self._waiting[0]
            return is_next


class Turn:
    """The turn of one session, which it may hold or wait for."""

    def __init__(self, lock: PriorityLock, place: Place, still_wanted: Callable[[], None]) -> None:
        self._lock, self._place, self._still_wanted = lock, place, still_wanted
        self._is_held = False
        self._begun_s = 0.0

    def __enter__(self) -> "Turn":
        self._lock.acquire(self._place, self._still_wanted)
        self._is_held = True
        self._begun_s = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_held:
            self._is_held = False
            self._lock.release()

    def give_way(self) -> None:
        """Let the sessions before this one have their turns, then go on.

        Work that has proved long lets all short work go first.
        """
        self._still_wanted()
        rank, is_long, number = self._place
        is_long = is_long or time.monotonic() - self._begun_s > _LONG_S
        self._place = rank, is_long, number
        if self._lock.is_awaited(self._place):
            self.__exit__()
            self.__enter__()
