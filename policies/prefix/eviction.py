"""Orders of eviction: which idle block of a prefix cache is given up first."""

from math import isnan
from typing import Protocol

from workloads.plugins import Registry


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
EVICTION_ORDERS: Registry[EvictionOrder] = Registry(
    "eviction",
    "eviction order",
    "policies.prefix.eviction:EvictionOrder",
    "",
    {
        "lru": "policies.prefix.eviction:LeastRecentlyUsed",
        "lfu": "policies.prefix.eviction:LeastFrequentlyUsed",
        "fifo": "policies.prefix.eviction:FirstInFirstOut",
    },
    checks="policies.prefix.eviction:RETURNED",
)


class EvictionRank:
    """Ranks idle blocks by an ``EvictionOrder``, and counts the moments."""

    def __init__(self, order: str) -> None:
        self._rank = EVICTION_ORDERS.build(order).rank
        self._now = 0

    def tick(self, moments: int = 1) -> int:
        """Return the next moment; so many pass."""
        first = self._now + 1
        self._now += moments
        return first

    def of(self, uses: int, born: int, moments: int = 1) -> tuple[float, int]:
        """Return the rank of what becomes idle now, while so many moments pass."""
        now = self.tick(moments)
        return self.at(uses, born, now)

    def at(self, uses: int, born: int, now: int) -> tuple[float, int]:
        """Return the rank of what became idle at a moment; the smallest is evicted first."""
        return self._rank(uses, born, now), now
