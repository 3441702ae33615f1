"""The speed of the simulator under pytest-benchmark: ``make bench``. It asserts only counts."""

import sys
from typing import Any

import pytest

from tests.benchmarks import compiled
from tests.benchmarks.simulator import (
    CASES,
    HEADER,
    NOISY_PROFILES,
    PAIRS,
    SIZE_HEADER,
    SIZES,
    Costs,
    size_line,
    start_line,
    start_to_result,
    whole_process,
)
from tests.support.both_builds import require_compiled


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> "Report":
    return Report(capsys)


class Report:
    """Lines between those of pytest."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *lines: str) -> None:
        with self._capsys.disabled():
            sys.stdout.write("\n" + "\n".join(lines) + "\n")


@pytest.mark.parametrize("name", CASES)
def test_cost_of_a_request(name: str, benchmark: Any, report: Report) -> None:
    make, needs = CASES[name]
    if needs is not None and not needs.is_file():
        pytest.skip(f"the public trace {needs.name} is not here")
    costs = Costs(make())
    run = benchmark.pedantic(costs.simulate, setup=costs.time_events, rounds=PAIRS)
    benchmark.extra_info["events_per_request"] = costs.events_per_request
    report(HEADER, costs.line(name))
    assert run.summary()["requests"]["finished"] == len(costs.case.trace)


@pytest.mark.parametrize("name", CASES)
def test_cost_of_a_request_compiled(name: str, benchmark: Any, report: Report) -> None:
    require_compiled()
    needs = CASES[name][1]
    if needs is not None and not needs.is_file():
        pytest.skip(f"the public trace {needs.name} is not here")
    figures = benchmark.pedantic(compiled.measure, args=(name,), rounds=1)
    benchmark.extra_info["events_per_request"] = figures["events_per_request"]
    report(f"{HEADER}   (compiled)", figures["line"])
    assert figures["compiled"]


@pytest.mark.parametrize("profile", NOISY_PROFILES)
def test_start_to_result(profile: str, benchmark: Any, report: Report) -> None:
    figures = benchmark.pedantic(start_to_result, args=(profile,), rounds=PAIRS)
    report(start_line(profile, figures))
    assert figures["finished"] == figures["requests"]
    assert figures["intervals"]


@pytest.mark.parametrize("requests", SIZES)
def test_cost_by_size_and_peak_memory(requests: int, benchmark: Any, report: Report) -> None:
    figures = benchmark.pedantic(whole_process, args=(requests,), rounds=1)
    benchmark.extra_info.update(figures)
    report(SIZE_HEADER, size_line(figures))
    assert figures["finished"] == requests
