"""The clock of the engine core."""

import time

_TICKS_PER_S = 1 << 30


class CoreClock:
    """Monotonic seconds since its creation, in ticks of 2**-30 s.

    Sums and differences of such stamps are exact floats (up to 97 days), so a simulator that adds
    recorded durations to recorded times arrives at the recorded times. It goes on in every process
    of the machine that it is handed to.
    """

    def __init__(self) -> None:
        self._zero_ns = time.monotonic_ns()

    @property
    def zero_s(self) -> float:
        """This clock's zero on ``time.monotonic``; on Linux also on ``time.perf_counter``."""
        return self._zero_ns / 1e9

    def __call__(self) -> float:
        """Return the seconds since the creation of the clock."""
        ticks = (time.monotonic_ns() - self._zero_ns) * _TICKS_PER_S // 1_000_000_000
        return ticks / _TICKS_PER_S
