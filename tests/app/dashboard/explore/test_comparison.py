"""Policies compared: tables and sentences of hand-made summaries, and links to the page Why."""

from typing import Any

import pandas as pd
import pytest

from servetwin.app.dashboard.explore.comparison import (
    LABELS,
    figures_table,
    gains_sentence,
    links_to_why,
    request_gains,
    scenario_under,
)
from servetwin.app.dashboard.metrics_row import ScenarioSummaries, shown_metrics
from servetwin.app.dashboard.scenario_words import CANNOT_TELL
from servetwin.app.scenario.files.scenario_file import ScenarioFile, Workload, parse_scenario
from servetwin.sim.experiments.paired_comparison import largest_differences
from servetwin.workloads.errors import PolicyError

METRICS = shown_metrics(["p90"])


def summary(ttft_s: float, goodput: float) -> dict[str, Any]:
    return {
        "ttft_s": {"p90": ttft_s}, "tpot_s": {"p90": 0.02}, "goodput_per_s": goodput,
        "output_throughput_tokens_per_s": 1000.0, "slo_attainment": 0.5,
    }  # fmt: skip


def two_sides() -> dict[str, ScenarioSummaries]:
    draws = [summary(0.1 + 0.01 * r, 5.0) for r in range(5)]
    slower = [summary(0.2 + 0.01 * r, 5.0) for r in range(5)]
    return {"a": ScenarioSummaries(draws[0], draws), "b": ScenarioSummaries(slower[0], slower)}


def test_tables_have_intervals_and_paired_differences() -> None:
    sides = two_sides()
    values = figures_table(sides, METRICS)
    assert values["policy"].tolist() == ["a", "b"]
    assert values["TTFT p90, ms"].tolist() == ["100 [100, 140]", "200 [200, 240]; +100 worse"]
    assert values["goodput, requests/s"].tolist() == ["5", "5; +0.00 none"]
    unknown = figures_table(sides, METRICS, ["b"]).drop(columns="policy")
    assert {cell.rpartition("; ")[2] for cell in unknown.iloc[1]} == {CANNOT_TELL}


def test_differences_that_vary_have_intervals() -> None:
    sides = two_sides()
    rising = [summary(0.2 + 0.02 * r, 4.5 + 0.25 * r) for r in range(5)]
    found = figures_table({**sides, "b": ScenarioSummaries(rising[0], rising)}, METRICS).iloc[1]
    assert found["TTFT p90, ms"].endswith("; +100 [+100, +140] worse")
    assert found["goodput, requests/s"].endswith("; -0.50 [-0.50, +0.50] may be none")


def test_a_single_replication_is_no_interval() -> None:
    """A recorded trace on certain step times is replicated once: other draws would be the same."""
    a, b = summary(13.9, 5.0), summary(0.5, 5.0)
    sides = {"a": ScenarioSummaries(a, [a]), "b": ScenarioSummaries(b, [b])}
    assert figures_table(sides, METRICS)["TTFT p90, s"].tolist() == ["13.9", "0.5; -13.4"]


def test_a_side_without_replications_has_values_only() -> None:
    sides = {"a": ScenarioSummaries(summary(0.1, 5.0)), "b": ScenarioSummaries(summary(0.05, 8.0))}
    assert figures_table(sides, METRICS)["goodput, requests/s"].tolist() == ["5", "8; +3.00"]
    undefined = {"a": ScenarioSummaries({**summary(0.1, 5.0), "ttft_s": {"p90": None}})}
    assert figures_table(undefined, METRICS)["TTFT p90, ms"].tolist() == ["-"]


def requests(latencies_s: list[float | None]) -> pd.DataFrame:
    done = [f is not None for f in latencies_s]
    return pd.DataFrame(
        {
            "request_id": [f"r{place}" for place in range(len(latencies_s))],
            "status": ["finished" if one else "refused" for one in done],
            "scheduled_s": [10.0 - place for place in range(len(latencies_s))],
            "e2e_s": [float("nan") if f is None else f for f in latencies_s],
        }
    )


def test_gains_are_by_request_and_of_those_that_finished_twice() -> None:
    found = request_gains(requests([1.0, 2.0, 3.0, None]), requests([0.5, 2.0, 4.0, 1.0]))
    assert found["request_id"].tolist() == ["r2", "r1", "r0"]
    assert found["difference"].tolist() == [1.0, 0.0, -0.5]
    gained, lost = largest_differences(found, 5)
    assert (gained["request_id"].tolist(), lost["request_id"].tolist()) == (["r0"], ["r2"])
    said = gains_sentence(found, "a", "b")
    assert said.startswith("From a to b: faster 1, slower 1 of 3 requests; E2E latency changes")
    assert "+167 ms" in said
    assert "No request" in gains_sentence(found.iloc[:0], "a", "b")


def test_every_offered_side_can_be() -> None:
    for label in LABELS:
        scenario_under(ScenarioFile(), label).settled()
    assert scenario_under(ScenarioFile(), "") == ScenarioFile()


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("vllm-v2", "did you mean 'vllm-v1'"),
        ("max_seqs=many", "max_seqs: 'many' is not a whole number"),
        ("batching=mine.py:Mine", "batching: 'mine.py:Mine' is not offered here"),
        ("router=mine.py:Mine", "router: 'mine.py:Mine' is not offered here"),
    ],
)
def test_a_bad_side_says_why(label: str, message: str) -> None:
    with pytest.raises(PolicyError) as error:
        scenario_under(ScenarioFile(), label)
    assert message in str(error.value)


def test_links_to_the_timeline_hold_the_scenario_of_that_side() -> None:
    file = scenario_under(parse_scenario("workload: {rate_per_s: 20}", "t"), "static+max_seqs=8")
    assert links_to_why(file, ["generated:7"]) == [
        "why?rate=20.0&batching=static&max_seqs=8&why_request=generated%3A7"
    ]
    uploaded = file.model_copy(update={"workload": Workload(source="mine.csv")})
    assert links_to_why(uploaded, ["r"]) is None
