"""The load tester's client under pytest-benchmark. It asserts only counts."""

import sys
from typing import Any

import pytest

from tests.benchmarks.loadtest import HEADER, cases, measure, row

SECONDS = 2.0


@pytest.mark.parametrize("name", cases(SECONDS))
def test_cost_and_lateness(name: str, benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = benchmark.pedantic(measure, args=(name, SECONDS), rounds=1)
    benchmark.extra_info.update(found)
    with capsys.disabled():
        sys.stdout.write(f"\n{HEADER}\n{row(cases(SECONDS)[name].name, found)}\n")
    assert found["finished"] == cases(SECONDS)[name].requests
