"""The place of idle blocks in the order of eviction."""

from servetwin.policies.prefix.eviction import EVICTION_ORDERS


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
