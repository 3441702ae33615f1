"""A link whose collectives were measured: seconds by message size and ranks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

import numpy as np

from servetwin.sim.catalogue.hardware import Collective, Link
from servetwin.workloads.errors import ShapeError

COLLECTIVES: tuple[Collective, ...] = get_args(Collective)
# (bytes, seconds) by rising size. The bytes of a gather, a scatter or an exchange are those of
# all ranks together, as nccl-tests counts them.
Points = tuple[tuple[float, float], ...]
Curves = Mapping[tuple[Collective, int], Points]

# Of the peak per direction: a switch that reduces lets all-reduces seem a little faster.
MOST_SHARE = 1.25


def bus_share(collective: Collective, ranks: int) -> float:
    """Return the share of a message that crosses the link of each rank (nccl-tests, busbw)."""
    if collective == "send":
        return 1.0
    return (2 if collective == "all_reduce" else 1) * (ranks - 1) / ranks


@dataclass(frozen=True, slots=True)
class MeasuredLink(Link):
    """Collectives by curves; those that were not measured by latency and bandwidth.

    Between two sizes the logarithm of the time is linear in that of the size. Shorter messages take
    as long as the shortest; longer ones have the bandwidth of the longest. With other ranks than
    were measured, the curve of the nearest number is taken as often as the link is crossed.
    """

    name: str = ""
    curves: Curves = field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, name: str, curves: Curves) -> "MeasuredLink":
        """Return the link of curves: bandwidth of the best, latency of the shortest message."""
        speeds = [
            bus_share(collective, ranks) * size / seconds
            for (collective, ranks), points in curves.items()
            for size, seconds in points
        ]
        shortest = min(points[0][1] / max(1, ranks - 1) for (_, ranks), points in curves.items())
        return cls(shortest, max(speeds), name, curves)

    def __str__(self) -> str:
        """Return its name, its figures and what was measured."""
        measured = ", ".join(f"{name} over {ranks}" for name, ranks in self.curves)
        figures = Link.__str__(self).removeprefix("link: ")
        return f"link {self.name}: {figures}{f'; measured: {measured}' if measured else ''}"

    def require_below(self, peak_bytes_per_s: float, of: str) -> None:
        """Raise ``ShapeError`` where a curve is faster than the wires: sizes are in elements."""
        if self.bytes_per_s > MOST_SHARE * peak_bytes_per_s:
            raise ShapeError(
                f"--link: {self.name}: {self.bytes_per_s / 1e9:.0f} GB/s, and {of} has "
                f"{peak_bytes_per_s / 1e9:.0f} GB/s; sizes must be in bytes (a table of elements "
                "has a column message_size)"
            )

    def slowed(self, factor: float) -> "MeasuredLink":
        """Return the link at ``1 / factor`` of its bandwidth; short messages take as long."""
        curves = {
            key: tuple((size, max(points[0][1], factor * s)) for size, s in points)
            for key, points in self.curves.items()
        }
        return MeasuredLink(self.latency_s, self.bytes_per_s / factor, self.name, curves)

    def measured_s(
        self, collective: Collective, size_bytes: float, ranks: int, model_s: float
    ) -> float:
        """Return the seconds by the curve of a collective, or by the model where none has it."""
        measured = [n for name, n in self.curves if name == collective]
        if not measured or ranks <= 1:
            return model_s
        nearest = min(measured, key=lambda n: abs(n - ranks))
        crossed = bus_share(collective, ranks) / bus_share(collective, nearest)
        points = self.curves[collective, nearest]
        longest, longest_s = points[-1]
        if size_bytes >= longest:
            return crossed * longest_s * size_bytes / longest
        sizes, seconds = np.log(np.array(points)).T
        return crossed * float(np.exp(np.interp(np.log(max(size_bytes, 1.0)), sizes, seconds)))
