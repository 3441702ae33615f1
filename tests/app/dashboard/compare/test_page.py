"""Compare: tables by hand-made summaries, the page's logic, and its links in a real browser."""

from typing import Any

import pandas as pd
import pytest

from app import figures
from app.dashboard.compare.policy_comparison import (
    OWN_LABEL,
    comparison_frame,
    differences_table,
    figures_table,
    gains_sentence,
    largest_gains_and_losses,
    policy_labels,
    request_gains,
    scenario_under,
    timeline_links,
)
from app.dashboard.metrics_row import ScenarioSummaries
from app.scenario.scenario_file import ScenarioFile, Workload, parse_scenario
from tests.support.dashboard_app import Browser, page_test
from workloads.errors import PolicyError


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
    values, differences = figures_table(two_sides()), differences_table(two_sides())
    assert values["TTFT p90, ms"].tolist() == ["100 [102, 138]", "200 [202, 238]"]
    assert differences["policy"].tolist() == ["b"]
    assert differences["TTFT p90, ms"].tolist() == ["+100 [+100, +100] worse"]
    assert differences["goodput, requests/s"].tolist() == ["+0.00 [+0.00, +0.00] may be none"]


def test_a_side_without_replications_has_values_only() -> None:
    sides = {"a": ScenarioSummaries(summary(0.1, 5.0)), "b": ScenarioSummaries(summary(0.05, 8.0))}
    assert figures_table(sides)["TTFT p90, ms"].tolist() == ["100", "50"]
    assert differences_table(sides)["goodput, requests/s"].tolist() == ["+3.00"]
    undefined = {"a": ScenarioSummaries({**summary(0.1, 5.0), "ttft_s": {"p90": None}})}
    assert figures_table(undefined)["TTFT p90, ms"].tolist() == ["-"]


def test_numbers_are_for_files() -> None:
    found = comparison_frame(two_sides())
    (row,) = found[(found["policy"] == "b") & (found["metric"] == "TTFT p90, ms")].to_dict(
        "records"
    )
    assert row["value"] == pytest.approx(200)
    assert row["difference_p5"] == pytest.approx(100)
    assert len(found) == 10


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
    gained, lost = largest_gains_and_losses(found)
    assert (gained["request_id"].tolist(), lost["request_id"].tolist()) == (["r0"], ["r2"])
    said = gains_sentence(found, "a", "b")
    assert said.startswith("From a to b: faster 1, slower 1 of 3 requests; E2E latency changes")
    assert "+167 ms" in said
    assert "No request" in gains_sentence(found.iloc[:0], "a", "b")


def test_gains_figure_has_a_trace_per_direction() -> None:
    found = request_gains(requests([1.0, 2.0, 3.0]), requests([0.5, 2.0, 4.0]))
    figure = figures.gains_over_time(found, "a", "b")
    assert [trace.name for trace in figure.data] == ["faster under b", "slower under b"]
    assert [list(trace.y) for trace in figure.data] == [[-500.0], [1000.0]]
    assert figure.data[0].marker.symbol != figure.data[1].marker.symbol
    assert figure.layout.xaxis.title.text == "scheduled arrival, s"
    assert figure.layout.yaxis.title.text == "E2E latency difference, ms"
    assert "1 are faster, 1 slower" in figures.alt_text(figure)


def test_every_offered_side_can_be() -> None:
    for label in policy_labels():
        scenario_under(ScenarioFile(), label).settled()
    assert scenario_under(ScenarioFile(), OWN_LABEL) == ScenarioFile()


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
    assert timeline_links(file, ["generated:7"]) == [
        "timeline?rate=20.0&batching=static&max_seqs=8&timeline_request=generated%3A7"
    ]
    uploaded = file.model_copy(update={"workload": Workload(source="mine.csv")})
    assert timeline_links(uploaded, ["r"]) is None


def small() -> Any:
    at = page_test("compare")
    at.session_state["requests"] = 60
    return at


def test_page_has_both_tables_and_words() -> None:
    at = small().run()
    assert not at.exception
    values, differences = (table.value for table in at.table)
    assert len(values) == 3
    assert len(differences) == 2
    assert values["TTFT p90, ms"].str.contains("[", regex=False).all()
    assert any("faster" in m.value for m in at.markdown)


def test_a_bad_label_is_one_line_and_the_others_stay() -> None:
    at = small()
    at.session_state["compare_policies"] = [OWN_LABEL, "vllm-v2", "chunked"]
    at.run()
    assert len(at.error) == 1
    assert "did you mean 'vllm-v1'" in at.error[0].value
    assert len(at.table[0].value) == 2


def test_one_policy_has_no_differences_and_none_says_what_to_do() -> None:
    at = small()
    at.session_state["compare_policies"] = [OWN_LABEL]
    at.run()
    assert len(at.table) == 1
    at.session_state["compare_policies"] = []
    at.run()
    assert "Choose policies" in at.info[0].value
    assert not at.exception


def test_stopped_shows_what_was_done_until_told_to_go_on() -> None:
    at = small()
    at.session_state["compare_policies"] = [OWN_LABEL, "chunked"]
    at.run()
    at.session_state["compare_policies"] = [OWN_LABEL, "chunked", "static"]
    files = [scenario_under(parse_scenario("workload: {requests: 60}", "t"), label)
             for label in at.session_state["compare_policies"]]  # fmt: skip
    at.session_state["compare_stopped"] = tuple(file.model_dump_json() for file in files)
    at.run()
    assert len(at.table[0].value) == 2
    next(b for b in at.button if b.label == "Go on").click().run()
    assert len(at.table[0].value) == 3
    assert not at.exception


@pytest.mark.browser
def test_long_work_can_be_stopped(chromium: Browser) -> None:
    from playwright.sync_api import expect

    chromium.page.goto(f"{chromium.url}/compare?requests=5000&rate=40")
    page = chromium.page
    page.get_by_role("button", name="Stop").click(timeout=60_000)
    expect(page.get_by_role("button", name="Go on")).to_be_visible(timeout=60_000)
    chromium.settle()
    expect(page.get_by_text("Stopped: what was simulated")).to_be_visible()
    chromium.assert_sound()


@pytest.mark.browser
def test_the_link_of_a_request_opens_its_timeline_under_that_policy(chromium: Browser) -> None:
    from playwright.sync_api import expect

    file = scenario_under(parse_scenario("workload: {requests: 60}", "t"), "static")
    links = timeline_links(file, ["generated:7"])
    assert links
    chromium.open(links[0], "Timeline")
    page = chromium.page
    expect(page.get_by_label("Request to explain")).to_have_value("generated:7")
    expect(page.get_by_label("Requests", exact=True)).to_have_value("60")
    chromium.assert_sound()
