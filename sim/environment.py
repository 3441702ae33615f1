"""SimPy's environment with its clock in whole ticks (``sim.ticks``), and two lean events."""

from collections.abc import Callable

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

    def next_tick(self) -> int:
        """When the next event of anybody happens."""
        queue = self._queue
        return queue[0][0] if queue else NEVER  # type: ignore[return-value]


class UrgentTimeout(Event):
    """A timeout that goes before all else at its moment.

    An arrival at the very end of a step is so seen by the next decision, as in the engine.
    """

    def __init__(self, env: Environment, delay: int) -> None:
        self.env = env
        self.callbacks = []
        self._ok = True
        self._value = None
        env.schedule(self, URGENT, delay)


class Alarm(Event):
    """Calls ``on_time(alarm)`` after ``delay`` ticks."""

    def __init__(self, env: Environment, delay: int, on_time: Callable[[Event], None]) -> None:
        self.env = env
        self.callbacks = [on_time]
        self._ok = True
        self._value = None
        env.schedule(self, NORMAL, delay)
