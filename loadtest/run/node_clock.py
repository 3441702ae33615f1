"""The clock of another machine, compared with the clock of this one."""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

ROUND_TRIPS = 30


class NodeClock(NamedTuple):
    """What ``time.perf_counter_ns`` of a node reads beyond that of this machine.

    The true offset is at most ``half_round_trip_ns`` away, however unlike the two ways are.
    """

    node: str
    offset_ns: int
    half_round_trip_ns: int


def clock_facts(clocks: Sequence[NodeClock]) -> dict[str, str | float | None]:
    """Return what ``meta.json`` says of a clock that was measured before and after the load."""
    first, last = clocks[0], clocks[-1]
    return {
        "node": first.node,
        "clock_offset_s": first.offset_ns / 1e9,
        "clock_error_s": first.half_round_trip_ns / 1e9,
        "clock_drift_s": (last.offset_ns - first.offset_ns) / 1e9 if len(clocks) > 1 else None,
    }


async def measure_clock(node: str, read_ns: Callable[[], Awaitable[int]]) -> NodeClock:
    """Read a node's clock several times; the shortest round trip counts."""
    readings = [await _reading(node, read_ns) for _ in range(ROUND_TRIPS)]
    return min(readings, key=lambda reading: reading.half_round_trip_ns)


async def _reading(node: str, read_ns: Callable[[], Awaitable[int]]) -> NodeClock:
    before_ns = time.perf_counter_ns()
    there_ns = await read_ns()
    after_ns = time.perf_counter_ns()
    return NodeClock(node, there_ns - (before_ns + after_ns) // 2, (after_ns - before_ns + 1) // 2)
