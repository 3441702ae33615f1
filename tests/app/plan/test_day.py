"""``plan --day``: the cheapest fleet over a day with a crash, its options, and what is no day."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin import SLO, plan
from servetwin.app.plan.day import PlannedDay, plan_day
from servetwin.app.plan.plan import Plan, PlannedDeployment, rank
from servetwin.app.plan.printed_plan import day_lines, day_texts
from servetwin.app.scenario.options.simulations import PlanOptions
from servetwin.app.scenario.scenarios import fitted
from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.catalogue.layout import Layout
from servetwin.sim.experiments.capacity import SLOTarget
from servetwin.sim.experiments.fewest_devices import Candidate, Planned, PlanQuestion, alone
from servetwin.sim.experiments.predict import run_once
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.readers.native import write_trace
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.command import servetwin
from tests.support.paths import SAMPLE

SETTINGS = "interval_s=5,stabilisation_s=20,gb_per_s=4"
OPTIONS = PlanOptions(
    gpu=("l4",), server="vllm@0.10.0", replications=0, processes=1, day=SETTINGS, price="l4=0.5"
)
TARGET = SLOTarget(SLO(ttft_s=2.0, tpot_s=0.2), 0.9)
MODEL = "llama-3-8b"


def day_of(busy_per_s: float = 6.0, busy_s: int = 100) -> Trace:
    """Ten minutes with a request every 4 s, and many from 200 s on."""
    quiet = [float(s) for s in range(0, 600, 4) if not 200 <= s < 200 + busy_s]
    busy = [200 + n / busy_per_s for n in range(int(busy_s * busy_per_s))]
    requests = [Request(f"r{n}", at_s, 500, 60) for n, at_s in enumerate(sorted(quiet + busy))]
    return Trace(tuple(requests), "a day")


def planned(trace: Trace, options: PlanOptions = OPTIONS) -> tuple[PlannedDeployment, PlannedDay]:
    row = plan(trace, MODEL, TARGET.slo, attainment=TARGET.attainment, options=options).rows[0]
    assert row.day is not None
    return row, row.day


@pytest.fixture(scope="module")
def winner() -> tuple[PlannedDeployment, PlannedDay]:
    return planned(day_of())


def test_a_rule_costs_less_than_the_smallest_fleet_that_stays(
    winner: tuple[PlannedDeployment, PlannedDay],
) -> None:
    row, day = winner
    fleet, stays = day.fleet, day.static
    assert (fleet.holds, stays.holds) == (True, True)
    assert fleet.replica_hours < 0.7 * stays.replica_hours
    assert day.cost == pytest.approx(0.5 * row.gpus / row.servers * fleet.replica_hours)
    assert day.least_replica_hours is not None
    assert day.least_replica_hours < fleet.replica_hours
    assert {count for _, count in fleet.sizes} <= set(range(1, stays.cluster.replicas + 1))
    scenario, _ = fitted(row.deployment.servers(), day_of(), {})
    fewer = replace(stays.cluster, replicas=stays.cluster.replicas - 1)
    assert TARGET.shares(run_once(day_of(), replace(scenario, cluster=fewer)))["all"] < 0.9


def test_the_replica_crashes_when_the_day_is_busiest(
    winner: tuple[PlannedDeployment, PlannedDay],
) -> None:
    _, day = winner
    (_, at), *_ = (part.split("=") for part in day.static.cluster.faults.split(",")[1:])
    assert 190 < float(at) < 300
    course = day.fleet.course
    assert max(course["arrivals_per_s"]) == pytest.approx(6.0, rel=0.1)
    assert {len(column) for column in course.values()} == {96}
    served_h = sum(course["replicas"]) * (course["at_s"][1] - course["at_s"][0]) / 3600
    assert course["replica_hours"][-1] == pytest.approx(served_h)


def test_the_load_at_which_it_no_longer_holds_is_the_last_that_was_tried(
    winner: tuple[PlannedDeployment, PlannedDay],
) -> None:
    _, day = winner
    *held, missed = day.attainments.values()
    assert list(day.attainments)[:2] == [1.0, 1.1]
    assert min(held) >= 0.9 > missed
    checks = day_texts(winner[0], day, TARGET, "")[2]
    assert (checks.count("(holds)"), checks.count("(does not hold)")) == (len(held), 1)


def test_replay_takes_its_options_and_finds_the_same(
    winner: tuple[PlannedDeployment, PlannedDay], tmp_path: Path
) -> None:
    row, day = winner
    write_trace(day_of(), tmp_path / "day.jsonl")
    done = servetwin(
        "replay", tmp_path / "day.jsonl", "--model", MODEL, "--gpu", "l4", "--server",
        row.deployment.server, *shlex.split(day_texts(row, day, TARGET, "")[1]),
        "--replications", 0, "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    fleet = json.loads(done.out)["fleet"]
    assert fleet["replica_hours"] == pytest.approx(day.fleet.replica_hours)
    assert [list(size) for size in day.fleet.sizes] == fleet["sizes"]


def test_without_a_price_gpu_hours_decide_and_it_is_said(
    winner: tuple[PlannedDeployment, PlannedDay],
) -> None:
    row, day = winner
    unknown = replace(row, day=replace(day, price=None, cost=None))
    longer = replace(day.fleet, replica_hours=2 * day.fleet.replica_hours)
    worse = replace(unknown, gpu="a", day=replace(day, price=None, cost=None, fleet=longer))
    dear = replace(row, gpu="b", day=replace(day, cost=1e9))
    assert sorted([worse, unknown, dear], key=rank) == [dear, unknown, worse]
    answer = Plan(MODEL, TARGET, 700, 1.0, (unknown,))
    assert "price unknown" in " ".join(day_lines(answer, "US$ "))
    assert day_lines(replace(answer, rows=(replace(row, day=None),)), "") == []


@pytest.mark.slow
@given(busy_per_s=st.floats(1.0, 8.0), busy_s=st.integers(20, 300))
@settings(max_examples=5, deadline=None)
def test_the_winner_never_costs_more_than_the_fleet_that_stays(
    busy_per_s: float, busy_s: int
) -> None:
    _, day = planned(day_of(busy_per_s, busy_s))
    assert day.fleet.replica_hours <= day.static.replica_hours
    assert (day.fleet.holds, day.static.holds) == (True, True)
    assert day.fleet.cluster.replicas == day.static.cluster.replicas


def test_a_replica_that_starts_at_once_is_down_for_a_second() -> None:
    _, day = planned(day_of(busy_s=20), replace(OPTIONS, day="weights_gb=0,interval_s=5"))
    assert day.fleet.cluster.faults.endswith("for_s=1")


def test_prefill_and_decode_apart_have_no_day() -> None:
    row = PlannedDeployment("l4")
    trace = day_of()
    scenario, _ = fitted(replace(row.deployment, model=MODEL, gpu="l4").servers(), trace, {})
    apart = Candidate((), Layout(), scenario).apart(1, 1)
    question = PlanQuestion(trace, TARGET, 8)
    steady = Planned(apart, alone(question, scenario))
    with pytest.raises(PolicyError, match="whole requests, each on its own"):
        plan_day(question, steady, find_model(MODEL), "", 1.0)


ASKED = (
    "--model", MODEL, "--gpu", "l4", "--slo", "ttft=2s", "--attainment", 0.9, "--replications", 0,
    "--processes", 1, "--day",
)  # fmt: skip


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("interval=5",), "--day: utilisation: unknown key 'interval'; did you mean 'interval_s'"),
        (("target=0.5",), "--day: target is what the plan finds; leave it out"),
        (("max=9",), "--day: max is what the plan finds"),
        (("gb_per_s=0",), "--day: utilisation: field 'gb_per_s'"),
        (("fast",), "--day: 'fast' is not KEY=VALUE"),
        (("interval_s=1e9",), "take a longer trace, or --day interval_s=N"),
        (("", "--lanes", 4), "a day needs arrival times; leave out --lanes"),
    ],
)
def test_settings_that_are_none_are_one_line(options: tuple[object, ...], problem: str) -> None:
    done = servetwin("plan", SAMPLE, *ASKED, *options)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done.err
    assert problem in done.err


@pytest.mark.parametrize(
    ("requests", "timed", "problem"),
    [
        (1, True, "all requests come within 0 s, and a rule looks every 15 s; take a longer trace"),
        (2, False, "a day needs arrival times; give a rate, --rate R"),
    ],
)
def test_a_trace_that_is_no_day_is_one_line(
    tmp_path: Path, requests: int, timed: bool, problem: str
) -> None:
    made = tuple(Request(f"r{n}", 0.0, 100, 10) for n in range(requests))
    write_trace(Trace(made, "made", timed=timed), tmp_path / "made.jsonl")
    done = servetwin("plan", tmp_path / "made.jsonl", *ASKED)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done.err
    assert problem in done.err, done.err
