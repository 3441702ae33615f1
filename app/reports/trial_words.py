"""A trial in words: the same in the terminal, in a report and on a page."""

from collections.abc import Mapping, Sequence
from typing import Any

from servetwin.sim.records.run import Run
from servetwin.workloads.rows import counted


def measured_noun(scenario: Mapping[str, Any]) -> str:
    """Return what a measured run is: ``load test``, or ``recorded run`` of another tool."""
    return "recorded run" if "recorded_by" in scenario else "load test"


def trial_words(measured: Sequence[Run]) -> str:
    """Return what was sent, and how often: ``240 requests at 6.81/s, 2 load tests``."""
    first = measured[0]
    rate_per_s = first.scenario.get("rate_per_s")
    return load_words(len(first.requests), rate_per_s, len(measured), first.scenario)


def load_words(
    requests: int, rate_per_s: float | None, times: int, scenario: Mapping[str, Any]
) -> str:
    """Return a load and how often it was measured, as ``trial_words``."""
    rate = "" if rate_per_s is None else f" at {rate_per_s:.2f}/s"
    return f"{counted(requests, 'request')}{rate}, {counted(times, measured_noun(scenario))}"


def recorded_words(run: Run) -> str:
    """Return ``recorded by stamps of the engine: 300 requests of measured.jsonl``."""
    scenario = run.scenario
    requests = f"{counted(len(run.requests), 'request')} of {scenario.get('trace')}"
    return f"recorded by {scenario.get('recorded_by', 'a load test')}: {requests}"
