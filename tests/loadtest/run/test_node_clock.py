"""A clock read over a slow and lopsided way is known to within half of the shortest round trip."""

import asyncio
import time
from collections.abc import Sequence

import pytest

from servetwin.loadtest.run.node_clock import ROUND_TRIPS, NodeClock, clock_facts, measure_clock

TRUE_OFFSET_NS = -7_000_000_000


class FarClock:
    """Reads ``TRUE_OFFSET_NS`` more than ours; the ways there and back take so long, call by call.

    The last delays stay.
    """

    def __init__(self, ways_s: Sequence[tuple[float, float]]) -> None:
        self._ways_s = ways_s
        self.calls = 0

    async def read_ns(self) -> int:
        there_s, back_s = self._ways_s[min(self.calls, len(self._ways_s) - 1)]
        self.calls += 1
        await asyncio.sleep(there_s)
        now_ns = time.perf_counter_ns() + TRUE_OFFSET_NS
        await asyncio.sleep(back_s)
        return now_ns


@pytest.mark.parametrize(
    "ways_s",
    [[(0.0, 0.0)], [(0.02, 0.0)], [(0.0, 0.02)], [(0.1, 0.0), (0.01, 0.02), (0.0, 0.001)]],
    ids=["near", "slow there", "slow back", "the surest is in the middle"],
)
def test_the_offset_is_within_half_a_round_trip(ways_s: list[tuple[float, float]]) -> None:
    far = FarClock([*ways_s, (0.0, 0.04)] if len(ways_s) > 1 else ways_s)
    found = asyncio.run(measure_clock("far", far.read_ns))
    assert far.calls == ROUND_TRIPS
    assert abs(found.offset_ns - TRUE_OFFSET_NS) <= found.half_round_trip_ns
    if len(ways_s) > 1:  # The third is the shortest; the others take 0.03 s or more.
        assert found.half_round_trip_ns < 15_000_000


def test_facts_have_the_offset_its_error_and_the_drift() -> None:
    before, after = NodeClock("a", 5_000_000_000, 2_000_000), NodeClock("a", 5_001_000_000, 1)
    facts = {"node": "a", "clock_offset_s": 5.0, "clock_error_s": 0.002}
    assert clock_facts([before]) == {**facts, "clock_drift_s": None}
    assert clock_facts([before, after]) == {**facts, "clock_drift_s": 0.001}
