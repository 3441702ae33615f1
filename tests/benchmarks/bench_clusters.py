"""The cost of a request behind each router under pytest-benchmark: ``make bench``."""

import sys
from typing import Any

import pytest

from servetwin.policies.registry import ROUTERS
from tests.benchmarks.clusters import HEADER, MEASURES, REPLICAS


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("router", ROUTERS)
def test_cost_of_a_request_by_replicas(
    router: str, measure: str, benchmark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    row = benchmark.pedantic(MEASURES[measure], args=(router,), rounds=1)
    benchmark.extra_info["events_per_request"] = row.events
    with capsys.disabled():
        sys.stdout.write(f"\n{measure}\n{HEADER}\n{row.line()}\n")
    assert set(row.events) == set(REPLICAS)
