"""The cheapest GPUs on the page Plan: what is asked of ``servetwin.plan``, and how it is drawn."""

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")

from servetwin.app.dashboard.plan import cheapest_gpus
from servetwin.app.dashboard.plan.cheapest_gpus import GpuQuestion, plan_on
from servetwin.app.plan.day import DayFleet, PlannedDay
from servetwin.app.plan.plan import PlannedDeployment
from servetwin.app.scenario.files.scenario_file import ScenarioFile, parse_scenario
from servetwin.app.scenario.options.simulations import PlanOptions
from servetwin.sim.experiments.predict import Interval
from servetwin.sim.experiments.scenario import ClusterConfig
from tests.support.dashboard_app import Browser, expect, page_test

L40S = PlannedDeployment(
    "l40s", headroom=0.2, servers=2, gpus=4, layout="tp=2", cost_per_h=3.2,
    cost_per_million_tokens=Interval(0.15, 0.15, 0.3), capacity_per_s=Interval(12.0, 11.0, 13.0),
    limited_by="memory", command="vllm serve m --tensor-parallel-size 2", manifest="kind: Pod",
)  # fmt: skip
H100 = replace(L40S, gpu="h100", servers=1, gpus=2, cost_per_h=5.0)
NONE = PlannedDeployment("l4", "not even 512 servers hold TTFT 500 ms")


CRASH = ClusterConfig(replicas=2, faults="crash:replica=0,at_s=9,for_s=16")
COURSE = {
    "at_s": [0.0, 60.0], "arrivals_per_s": [1.0, 5.0], "replicas": [2.0, 2.0],
    "replica_hours": [0.03, 0.07], "factor": [0.4, 1.2],
}  # fmt: skip
STAYS = DayFleet(CRASH, 0.995, True, 0.07, [[0.0, 2]], COURSE)
SCALED = replace(
    STAYS, cluster=replace(CRASH, autoscaling="utilisation:target=0.2,max=2"), replica_hours=0.05,
    sizes=[[0.0, 2], [75.0, 1]],
)  # fmt: skip
DAY = PlannedDay(SCALED, STAYS, 3.2, 0.16, {1.0: 0.995, 1.1: 0.98}, 0.02, "weights_gb=16")


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[GpuQuestion]:
    """The questions of the page, which are answered at once."""
    noted = list[GpuQuestion]()
    answered = SimpleNamespace(results=dict(enumerate((NONE, H100, L40S))))
    monkeypatch.setattr(cheapest_gpus, "job_of", lambda _, items, __: noted.extend(items))
    monkeypatch.setattr(cheapest_gpus, "watch_job", lambda _, draw: draw(answered))
    return noted


def opened(**state: Any) -> Any:
    at = page_test("plan")
    for name, value in state.items():
        at.session_state[name] = value
    return at.run()


def test_the_cheapest_come_first_with_the_command_of_each(questions: list[GpuQuestion]) -> None:
    at = opened()
    assert not at.exception
    assert at.subheader[0].value.replace("\\", "") == (
        "4 L40S (2 x tp=2) hold TTFT 500 ms, TPOT 50 ms for 99 % of the requests at 10 per second, "
        "for US$ 3.20 per hour"
    )
    rows = at.dataframe[0].value
    assert list(rows["GPUs"]) == ["4 x l40s", "2 x h100", "h200", "a100-80gb", "b200"]
    assert list(rows["holds up to"][:2]) == ["12/s [11 to 13]"] * 2
    assert list(rows["per M tokens"][:2]) == ["0.15 [0.15 to 0.3]"] * 2
    assert rows["per hour"][2:].isna().all(), "not planned yet"
    assert [tab.label for tab in at.tabs] == ["4 x l40s", "2 x h100"]
    assert [code.value for code in at.code] == [L40S.command] * 2
    assert any(one.value.startswith("l4\\: not even 512") for one in at.caption)
    assert [one.options.gpu[0] for one in questions] == [
        "h100",
        "h200",
        "a100-80gb",
        "l40s",
        "b200",
    ]


def test_a_day_is_drawn_above_the_kinds_of_gpus(
    questions: list[GpuQuestion], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = dict(enumerate((replace(L40S, day=DAY), NONE)))
    answered = SimpleNamespace(results=rows)
    monkeypatch.setattr(cheapest_gpus, "watch_job", lambda _, draw: draw(answered))
    at = opened(plan_day=True, plan_rule=" gb_per_s=5 ")
    assert not at.exception
    assert {one.options.day for one in questions} == {"gb_per_s=5"}
    assert at.subheader[0].value.replace("\\", "") == (
        "The day on up to 2 x tp=2 of l40s, US$ 0.16: TTFT 500 ms, TPOT 50 ms for 99 % of the "
        "requests, though one crashes"
    )
    assert at.code[0].value == (
        "--replicas 2 --autoscale utilisation:target=0.2,max=2 "
        "--faults crash:replica=0,at_s=9,for_s=16"
    )
    (cells,) = at.dataframe[0].value.to_dict("records")
    assert (cells["cost"], cells["static"]) == ("0.16", "0.07 (2 x)")
    captions = " ".join(one.value.replace("\\", "") for one in at.caption)
    assert "98.00 % at 1.1 of the load (does not hold)" in captions
    chart = json.loads(at.get("plotly_chart")[0].proto.spec)
    assert [trace["name"] for trace in chart["data"][:4]] == ["fleet"] * 4


def test_without_the_switch_no_day_is_asked_for(questions: list[GpuQuestion]) -> None:
    opened(plan_rule="gb_per_s=5")
    assert {one.options.day for one in questions} == {None}


def test_the_choices_of_the_reader_are_those_of_the_plan(questions: list[GpuQuestion]) -> None:
    opened(
        plan_gpus=["mi300x"], plan_price=" 2 ", plan_budget=9.0, plan_spares=1, plan_rate=3.0,
        model="llama-3.1-8b", times="sheet", server="sglang@0.5",
    )  # fmt: skip
    (one,) = questions
    chosen = PlanOptions(
        gpu=("mi300x",), price="2", budget=9.0, spares=1, server="sglang@0.5", processes=1
    )
    assert (one.model, one.options, one.file.workload.rate_per_s) == ("llama-3.1-8b", chosen, 3.0)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"plan_price": "cheap"}, "no price"),
        ({"plan_price": "h1000=2"}, "h1000"),
        ({"ttft_ms": None, "tpot_ms": None}, "no limit"),
    ],
)
def test_bad_input_is_one_error_and_no_answer(
    questions: list[GpuQuestion], state: dict[str, Any], said: str
) -> None:
    at = opened(**state)
    assert not at.exception
    (error,) = at.error
    assert said in error.value
    assert not questions


def test_a_kind_is_planned_as_the_command_does() -> None:
    file = parse_scenario("workload: {requests: 110}", "t")
    options = PlanOptions(gpu=("h100",), price="3", replications=0, processes=1)
    row = plan_on(GpuQuestion(file, "llama-3-8b", options))
    assert (row.gpu, row.problem, row.cost_per_h) == ("h100", "", 3.0 * row.gpus)
    assert row.command.startswith("vllm serve")


def test_what_cannot_be_is_a_row_that_says_why() -> None:
    wrong = plan_on(GpuQuestion(ScenarioFile(), "llama-9", PlanOptions(gpu=("h100",))))
    assert wrong.gpu == "h100"
    assert "llama-9" in wrong.problem


@pytest.mark.slow
@pytest.mark.browser
def test_the_page_opens_with_the_command_of_the_cheapest(user: Browser) -> None:
    user.open("?requests=110&plan_gpus=h100", "Plan")
    answer = user.page.get_by_role("heading", level=3)
    expect(answer).to_contain_text("hold", timeout=120_000)
    expect(user.page.get_by_text("vllm serve").first).to_be_visible()
    user.assert_sound()
