"""Orders of eviction: which idle block of a prefix cache is given up first."""

from math import isnan
from typing import Protocol

from servetwin.policies.registry import EVICTION_ORDERS


class EvictionOrder(Protocol):
    """Ranks the blocks that no sequence holds. Built without arguments."""

    def rank(self, uses: int, born: int, now: int) -> float:
        """Return the rank of a block that becomes idle; the smallest is evicted first.

        ``uses`` is how many sequences have held it, ``born`` the moment at which it was filled and
        ``now`` the present one, both counted in moments at which the cache changed. Of equal ranks,
        the block that has been idle longest is evicted first.
        """


class LeastRecentlyUsed:
    """The block that has been idle longest."""

    def rank(self, uses: int, born: int, now: int) -> float:
        """Return the present moment."""
        return now


class LeastFrequentlyUsed:
    """The block that the fewest sequences have held."""

    def rank(self, uses: int, born: int, now: int) -> float:
        """Return the number of uses."""
        return uses


class FirstInFirstOut:
    """The block that was filled first."""

    def rank(self, uses: int, born: int, now: int) -> float:
        """Return the moment at which the block was filled."""
        return born


def _wrong_rank(rank: float, uses: int, born: int, now: int) -> str | None:
    return f"{rank}, which has no order" if isnan(rank) else None


RETURNED = {"rank": _wrong_rank}


class EvictionRank:
    """Ranks idle blocks by an ``EvictionOrder``, and counts the moments."""

    def __init__(self, order: str) -> None:
        eviction: EvictionOrder = EVICTION_ORDERS.build(order)
        self._rank = eviction.rank
        self._now = 0

    def tick(self) -> int:
        """Return the next moment."""
        self._now += 1
        return self._now

    def of(self, uses: int, born: int) -> tuple[float, int]:
        """Return the rank of what becomes idle now; the smallest is evicted first."""
        now = self.tick()
        return self._rank(uses, born, now), now
