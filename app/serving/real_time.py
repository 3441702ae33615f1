"""Let simulated steps take real time."""

import logging
import time
from collections.abc import Callable

SPIN_S = 0.0003
"""How late a sleep may end, in seconds: the last part of a wait is spent without sleeping."""
MOST_HANDLING_S = 0.001
"""The longest time between two steps that counts as work of the core, in seconds."""
MOST_MADE_UP_S = 0.01
"""The most lateness, in seconds, that the next steps make up for. Many short decodes would make up
for a stall, and a calibration would find them too short."""
MOST_LATE_S = 0.1
"""How late a step may be, in seconds, before a warning: the machine stood still."""

Clock = Callable[[], float]


class StepTimer:
    """When steps end, on an absolute clock: a little lateness of one step shortens the next.

    A step begins when the one before it was due, or, after a rest, when it is decided. It lasts
    until the next can be decided, as in a calibration; so the wait for its end leaves out what the
    core needed to get from the last end to the next decision.
    """

    def __init__(self, clock: Clock, sleep: Callable[[float], None] = time.sleep) -> None:
        self._clock = clock
        self._sleep = sleep
        self._due_s: float | None = None
        self._ended_s = 0.0
        self._handling_s = 0.0
        self._has_warned = False

    def begin(self, decided_s: float) -> None:
        """Note that a step is decided at ``decided_s``."""
        if self._due_s is None:
            self._due_s = decided_s
            return
        self._handling_s = min(decided_s - self._ended_s, MOST_HANDLING_S)
        late_s = decided_s - self._due_s
        if late_s > MOST_LATE_S:
            self._warn(late_s)
        if late_s > MOST_MADE_UP_S:
            self._due_s = decided_s

    def rest(self) -> None:
        """Note that there was nothing to decide."""
        self._due_s = None

    def wait(self, duration_s: float) -> None:
        """Return when the step that has begun is over."""
        assert self._due_s is not None
        self._due_s += duration_s
        end_s = self._due_s - self._handling_s
        while (left_s := end_s - self._clock()) > 0:
            if left_s > SPIN_S:
                self._sleep(left_s - SPIN_S)
        self._ended_s = self._clock()

    def _warn(self, late_s: float) -> None:
        if not self._has_warned:
            logging.getLogger(__name__).warning(
                "this machine is too slow or too busy to simulate that server in real time: "
                "a step came %.2f s late (said once)",
                late_s,
            )
        self._has_warned = True
