"""The time that a server lives through: it stands still while the server does."""

from collections.abc import Iterable

from loadtest.mock.failures import Freeze


class ServerClock:
    """Between ``time.perf_counter_ns`` and the server's own time, which freezes stop.

    Freezes count from ``start``; before it, both times are the same.
    """

    def __init__(self, freezes: Iterable[Freeze]) -> None:
        self._frozen_ns: list[tuple[int, int]] = []
        end_ns = 0
        for freeze in sorted(freezes, key=lambda freeze: freeze.at_s):
            start_ns = max(end_ns, round(freeze.at_s * 1e9))
            end_ns = max(start_ns, round((freeze.at_s + freeze.for_s) * 1e9))
            self._frozen_ns.append((start_ns, end_ns))
        self._zero_ns: int | None = None

    def start(self, now_ns: int) -> None:
        """The first request came; later calls change nothing."""
        if self._zero_ns is None:
            self._zero_ns = now_ns

    def due_ns(self, arrival_ns: int, after_s: float) -> int:
        """When the server has lived ``after_s`` longer than at ``arrival_ns``."""
        after_ns = round(after_s * 1e9)
        if self._zero_ns is None:
            return arrival_ns + after_ns
        return self._zero_ns + self._passed_ns(
            self._lived_ns(arrival_ns - self._zero_ns) + after_ns
        )

    def _lived_ns(self, passed_ns: int) -> int:
        frozen = (
            min(passed_ns, end) - start for start, end in self._frozen_ns if start < passed_ns
        )
        return passed_ns - sum(frozen)

    def _passed_ns(self, lived_ns: int) -> int:
        for start_ns, end_ns in self._frozen_ns:
            if lived_ns >= start_ns:
                lived_ns += end_ns - start_ns
        return lived_ns
