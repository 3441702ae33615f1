"""Time of messages between devices: the alpha-beta model (Hockney 1994; Thakur 2005)."""

from dataclasses import dataclass
from math import ceil, log2
from typing import Literal

Algorithm = Literal["ring", "tree", "best"]


@dataclass(frozen=True, slots=True)
class Link:
    """``latency_s`` (alpha) per message, ``bytes_per_s`` (1/beta) per direction."""

    latency_s: float
    bytes_per_s: float

    def send_s(self, size_bytes: float) -> float:
        """Return the seconds of one message."""
        return self.latency_s + size_bytes / self.bytes_per_s

    def all_reduce_s(self, size_bytes: float, ranks: int, algorithm: Algorithm = "best") -> float:
        """Sum ``size_bytes`` over ``ranks``.

        Ring: 2 (P - 1) alpha + 2 (P - 1) / P M beta; tree (recursive doubling): log2 P (alpha +
        M beta); "best" is the quicker one, as libraries choose by size.
        """
        if ranks <= 1:
            return 0.0
        wire_s = size_bytes / self.bytes_per_s
        ring = 2 * (ranks - 1) * self.latency_s + 2 * (ranks - 1) / ranks * wire_s
        tree = ceil(log2(ranks)) * (self.latency_s + wire_s)
        return {"ring": ring, "tree": tree, "best": min(ring, tree)}[algorithm]

    def all_to_all_s(self, size_bytes: float, ranks: int) -> float:
        """Return the seconds in which every rank sends each other one its share of ``size_bytes``.

        Pairwise exchange: (P - 1) (alpha + M / P beta).
        """
        return (ranks - 1) * self.send_s(size_bytes / ranks)
