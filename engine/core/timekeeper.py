"""What the machine gave a core between two steps: the reference beat, and the time others took."""

import time
from collections.abc import Callable

BEAT_EVERY_S = 0.06
"""How often a busy core runs the reference beat: it costs less than 3 % of the time."""


class Timekeeper:
    """Times a core; ``beat`` computes the reference beat (``engine.kernels.beat``).

    With ``computes_here``, on the thread of the core and nowhere else, beats are in its CPU time,
    and the wall time that the thread did not run although it had a step is known as lost. Else both
    are in the beat, which is in wall time.
    """

    def __init__(
        self, beat: Callable[[], None], clock: Callable[[], float], *, computes_here: bool
    ) -> None:
        self._beat, self._clock = beat, clock
        self._computes_here = computes_here
        self._beaten_s = self._began_s = self._beat_s = 0.0
        self._ran_s = self._running_s()

    def begin_step(self, now_s: float) -> tuple[float, float]:
        """Return (beat, lost) in seconds since the step before, if the core did not sleep since."""
        ran_s, beat_s = self._running_s(), self._beat_s
        lost_s = (now_s - self._began_s) - (ran_s - self._ran_s)
        self._began_s, self._ran_s, self._beat_s = now_s, ran_s, 0.0
        return beat_s, max(0.0, lost_s) if self._computes_here else 0.0

    def end_step(self) -> None:
        """Run the beat where one is due."""
        now_s = self._clock()
        if now_s - self._beaten_s >= BEAT_EVERY_S:
            began_s = self._running_s()
            self._beat()
            self._beaten_s, self._beat_s = now_s, self._running_s() - began_s

    def _running_s(self) -> float:
        return time.thread_time() if self._computes_here else self._clock()
