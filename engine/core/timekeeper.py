"""What the machine gave a core between two steps: the reference beat, and the time others took."""

import resource
import time
from collections.abc import Callable
from typing import NamedTuple

# How often a busy core runs the reference beat: it costs less than 3 % of the time.
BEAT_EVERY_S = 0.07


class Since(NamedTuple):
    """What passed between the starts of two steps beside the first of them.

    ``beat_s`` and ``lost_s`` are seconds; ``switches`` is how often another program took the core.
    """

    beat_s: float = 0.0
    lost_s: float = 0.0
    switches: int = 0


class Timekeeper:
    """Times a core; ``beat`` computes the reference beat (``engine.kernels.beat``).

    It returns the seconds by the clock of a device that has one.

    With ``computes_here``, on the thread of the core and nowhere else, beats are in its CPU time,
    and the wall time that the thread did not run although it had a step is known as lost; and so is
    how often that came about, since a core that comes back has cold caches. Else all is in the
    beat, which is in wall time.
    """

    def __init__(
        self, beat: Callable[[], float | None], clock: Callable[[], float], *, computes_here: bool
    ) -> None:
        self._beat, self._clock = beat, clock
        self._computes_here = computes_here
        self._beaten_s = self._began_s = self._beat_s = 0.0
        self._ran_s, self._switched = self._running_s(), 0

    def begin_step(self, now_s: float) -> Since:
        """Return what passed since the step before, if the core did not sleep since."""
        ran_s, beat_s = self._running_s(), self._beat_s
        lost_s = (now_s - self._began_s) - (ran_s - self._ran_s)
        self._began_s, self._ran_s, self._beat_s = now_s, ran_s, 0.0
        if not self._computes_here:
            return Since(beat_s)
        before, self._switched = self._switched, _switches()
        return Since(beat_s, max(0.0, lost_s), self._switched - before)

    def end_step(self) -> None:
        """Run the beat where one is due."""
        now_s = self._clock()
        if now_s - self._beaten_s >= BEAT_EVERY_S:
            began_s = self._running_s()
            device_s = self._beat()
            elapsed_s = self._running_s() - began_s
            self._beaten_s, self._beat_s = now_s, elapsed_s if device_s is None else device_s

    def _running_s(self) -> float:
        return time.thread_time() if self._computes_here else self._clock()


def _switches() -> int:
    """Return how often this thread has had to leave its core; 0 where the system does not tell."""
    thread = getattr(resource, "RUSAGE_THREAD", None)
    return 0 if thread is None else resource.getrusage(thread).ru_nivcsw
