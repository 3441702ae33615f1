"""SimPy's environment with its clock in whole ticks (``sim.ticks``), and an alarm."""

from collections.abc import Callable, Iterator
from heapq import heappush
from typing import Any

import simpy
from simpy.events import NORMAL, URGENT, Event

NEVER = 1 << 200
"""A tick that no simulation reaches."""


class Environment(simpy.Environment):
    """Time is an integer number of ticks."""

    _now: int

    def __init__(self) -> None:
        super().__init__(initial_time=0)

    @property
    def now(self) -> int:
        """The current tick."""
        return self._now

    @property
    def heap(self) -> tuple[list[Any], Iterator[int]]:
        """SimPy's own event heap of (tick, priority, number, event), and the next numbers.

        For events at a tick instead of after a delay: exact, and quicker.
        """
        return self._queue, self._eid

    def next_tick(self) -> int:
        """When the next event of anybody happens."""
        queue = self._queue
        return queue[0][0] if queue else NEVER  # type: ignore[return-value]


class Alarm(Event):
    """Calls ``on_time(alarm)`` a while after it is ``set``; may be set again once it has rung.

    An ``urgent`` one goes before all else at its moment: an arrival at the very end of a step is so
    seen by the next decision, as in the engine.
    """

    def __init__(
        self, env: Environment, on_time: Callable[[Event], None], urgent: bool = False
    ) -> None:
        self.env = env
        self.callbacks = None  # type: ignore[assignment]  # as after every event of SimPy's
        self._queue, self._ids = env.heap
        self._on_time = [on_time]
        self._priority = URGENT if urgent else NORMAL
        self._ok = True
        self._value = None

    def set(self, tick: int) -> None:
        """Ring at ``tick``, now or later; it must not be set already."""
        self.callbacks = self._on_time
        heappush(self._queue, (tick, self._priority, next(self._ids), self))
