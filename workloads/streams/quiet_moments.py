"""The longest gap between arrivals in each part of a trace: where a server may be empty."""

import numpy as np

from servetwin.workloads.streams.request_block import Floats

FIRST_PART = 64
MOST_PARTS = 4096


class QuietMoments:
    """Keeps, of each part of so many requests, the one that comes after the longest gap.

    The parts grow with the trace, so that there are never more than ``MOST_PARTS`` of them.
    """

    def __init__(self) -> None:
        self._part = FIRST_PART
        self._found: list[tuple[float, int]] = []
        self._count = 0
        self._latest_s: float | None = None

    def add(self, arrivals_s: Floats) -> None:
        """Add the next arrivals, in order."""
        if not len(arrivals_s):
            return
        before_s = arrivals_s[0] if self._latest_s is None else self._latest_s
        gaps_s = np.diff(arrivals_s, prepend=before_s)
        begin = 0
        while begin < len(gaps_s):
            number = self._count + begin
            end = min(len(gaps_s), begin + self._part - number % self._part)
            longest = begin + int(gaps_s[begin:end].argmax())
            self._keep(number // self._part, (float(gaps_s[longest]), self._count + longest))
            begin = end
        self._count += len(gaps_s)
        self._latest_s = float(arrivals_s[-1])

    def _keep(self, place: int, gap: tuple[float, int]) -> None:
        if place < len(self._found):
            self._found[place] = max(self._found[place], gap, key=lambda found: found[0])
            return
        self._found.append(gap)
        if len(self._found) > MOST_PARTS and not len(self._found) % 2:
            pairs = zip(self._found[::2], self._found[1::2], strict=True)
            self._found = [max(pair, key=lambda found: found[0]) for pair in pairs]
            self._part *= 2

    def cuts(self, parts: int) -> list[int]:
        """Return at most ``parts`` - 1 numbers of requests that come after a long gap, ascending.

        Each comes after the longest of the gaps that share the nearest even cut.
        """
        best = [(0.0, 0)] * (parts + 1)
        for gap_s, number in self._found:
            place = (2 * number * parts // self._count + 1) // 2
            best[place] = max(best[place], (gap_s, number))
        return [number for gap_s, number in best[1:parts] if gap_s > 0]
