"""SimPy's environment with its clock in whole ticks (``sim.step_times.step_time``), and an alarm.

Of SimPy only the public interface is used: ``Environment.run``, ``now`` and ``schedule``,
``Event.succeed``, ``callbacks`` and ``processed``, the priorities ``URGENT`` and ``NORMAL``.
Servers and clients are callbacks on events, not processes: most steps need no event at all.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import simpy
from simpy.core import SimTime
from simpy.events import NORMAL, URGENT, Event, EventPriority

# A tick that no simulation reaches.
NEVER = 1 << 200


class Environment(simpy.Environment):
    """Time is an integer number of ticks."""

    tick = 0
    """How far the simulation has come: a server goes on past ``now`` up to the next event."""

    if TYPE_CHECKING:  # SimPy's own types allow fractions

        @property
        def now(self) -> int:
            """Return the tick of the present event."""

    def next_tick(self) -> int:
        """Return the tick of the next event."""
        return min(self.peek(), NEVER)  # type: ignore[return-value]  # without one it is inf


class _Unscheduled(simpy.Environment):
    """Schedules nothing: an event that succeeds here is triggered, and still free to be timed."""

    def schedule(self, event: Event, priority: EventPriority = NORMAL, delay: SimTime = 0) -> None:
        """Leave ``event`` alone."""


_UNSCHEDULED = _Unscheduled()


class Alarm(Event):
    """Calls ``on_time(alarm)`` at the tick for which it is ``set``, any number of times.

    An ``urgent`` alarm rings before all others of its tick, so a request that arrives at the very
    end of a step is seen by the next decision, as in the engine.
    """

    def __init__(
        self, env: Environment, on_time: Callable[[Event], None], urgent: bool = False
    ) -> None:
        super().__init__(_UNSCHEDULED)
        self.succeed()
        self.callbacks = None  # type: ignore[assignment]  # as after every event of SimPy's
        self.env = env
        self._on_time = [on_time]
        self._priority = URGENT if urgent else NORMAL

    def set(self, tick: int) -> None:
        """Ring at ``tick``, now or later; the alarm must not be set already."""
        self.callbacks = self._on_time
        env = self.env
        env.schedule(self, self._priority, tick - env.now)
