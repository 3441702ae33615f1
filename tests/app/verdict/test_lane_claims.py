"""Lanes as the load of a verification: what both sides send, find in the cache, and take."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from servetwin.app.reports.verdict import verdict_lines
from servetwin.app.verdict import verifier
from servetwin.app.verdict.lane_claims import NO_TASK, LaneClaims
from servetwin.app.verdict.measured_facts import measured_facts
from servetwin.app.verdict.two_claims import TwoClaims
from servetwin.app.verdict.verification import Verification
from servetwin.loadtest.endpoint import Endpoint
from servetwin.loadtest.options import LoadOptions
from servetwin.sim.records.run import Run
from servetwin.workloads.errors import EndedEarly, LoadTestError
from servetwin.workloads.graphs.lane_rules import LaneRules
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.command import refused
from tests.support.fake_calibrator import PLAN, PROFILE, FakeCalibrator, verified
from tests.support.stamped_runs import stamped

CACHING = PROFILE.with_policies(replace(PROFILE.policy_config(), prefix_cache=True))


def task(name: str, at_s: float) -> Iterator[Request]:
    """A session of four turns, whose third waits for a sub-agent too."""
    parents = {0: (), 1: (f"{name}.0",), 2: (f"{name}.1", f"{name}/b.0"), 3: (f"{name}.2",)}
    rows = [(name, turn, parents[turn]) for turn in parents]
    for place, (session, turn, before) in enumerate([*rows[:2], (f"{name}/b", 0, ()), *rows[2:]]):
        ids = tuple(1000 * int(name[1:]) + block for block in range(2 + 2 * turn))
        yield Request(
            f"{session}.{turn}", at_s + place, 16 * len(ids), 6, prefix_block_ids=ids,
            block_tokens=16, session_id=session, turn=turn,
            parent_ids=before or ((f"{name}.1",) if place else ()),
            delay_s=0.05 if place else None,
        )  # fmt: skip


TRACE = Trace(
    tuple(sorted((r for n in range(6) for r in task(f"t{n}", 9.0 * n)), key=lambda r: r.arrival_s)),
    "agents",
    lanes=LaneRules(2, idle_s=0.05, duration_s=6.0),
)


@pytest.fixture
def found(calibrator: FakeCalibrator, monkeypatch: pytest.MonkeyPatch) -> Verification:
    def answer(endpoint: Endpoint, trace: Trace, options: LoadOptions | None = None) -> Run:
        assert options is None, "lanes wait for the machine: its speed needs no bursts"
        return replace(stamped(trace, CACHING), records=[])

    monkeypatch.setattr(verifier, "run_load_test", answer)
    return verified(calibrator, trace=TRACE, profile=CACHING)


def test_both_sides_send_the_same_in_the_same_order_and_find_as_much(
    found: Verification,
) -> None:
    (level,) = found.levels
    lanes = level.claims.lanes
    assert lanes
    assert (lanes.moved, lanes.early) == (0, 0)
    assert lanes.equal == lanes.requests == sum(len(run.requests) for run in level.measured)
    assert lanes.tasks >= 2 * PLAN.repeats
    later = [turns for turns in lanes.by_turn if turns["from_turn"] >= 1]
    assert all(turns["predicted"] == turns["measured"] > 0 for turns in later)


def test_the_time_of_a_task_is_judged_and_printed(found: Verification) -> None:
    (level,) = found.levels
    row = next(row for row in level.claims.comparison.metrics if row.metric == "task_s.mean")
    assert row.error == pytest.approx(0.0, abs=0.02)
    assert row.limit == 0.10
    assert row.outcome == "holds"
    text = " ".join(" ".join(verdict_lines(found)).split())
    assert "time of a task mean" in text
    assert "0 in another order, 0 sent before a parent had ended" in text
    assert found.as_dict()["levels"][0]["claims"]["lanes"]["moved"] == 0


def test_a_machine_that_is_slower_than_its_steps_say_has_longer_tasks() -> None:
    run = stamped(TRACE, CACHING)
    slow = stamped(TRACE, CACHING.scaled(1.5))
    claims = LaneClaims.of([measured_facts(slow, TRACE)] * 2, run, 0.02)
    assert claims.task.error
    assert claims.task.error < -0.02
    assert claims.task.outcome == "refuted"


def changed(run: Run, name: str, **columns: Any) -> Run:
    rows = run.requests.copy()
    for column, value in columns.items():
        rows.loc[rows["request_id"] == name, column] = value
    return replace(run, requests=rows)


@pytest.mark.parametrize(
    ("columns", "counts"),
    [
        ({"cached_tokens": 1}, (0, 0, -1)),
        ({"prompt_tokens": 9}, (1, 0, 0)),
        ({"scheduled_s": 0.0}, (None, 1, 0)),
    ],
)
def test_what_differs_is_counted(
    columns: dict[str, float], counts: tuple[int | None, int, int]
) -> None:
    run = stamped(TRACE, CACHING)
    rows = run.requests
    name = str(rows.loc[(rows["turn"] == 2) & ~rows["warm_up"].astype(bool), "request_id"].iloc[-1])
    claims = LaneClaims.of([measured_facts(changed(run, name, **columns), TRACE)], run, 0.1)
    moved, early, unequal = counts
    assert claims.early == early
    assert claims.equal == claims.requests + unequal
    assert claims.moved == moved or (moved is None and claims.moved > 1)


def test_lanes_without_a_whole_task_cannot_tell() -> None:
    short = replace(TRACE, lanes=LaneRules(2, idle_s=0.05, duration_s=0.01))
    run = stamped(short, CACHING)
    claims = LaneClaims.of([measured_facts(run, short)], run, 0.1)
    assert claims.tasks == 0
    assert claims.task.outcome == "cannot tell"
    judged = TwoClaims.of([run], short, CACHING, {}, 0).comparison
    assert NO_TASK in judged.doubts


@pytest.mark.parametrize(
    ("error", "tokens", "is_whole"),
    [("http_4xx", 3000, True), ("http_4xx", 30, False), ("orphaned", 30, True)],
)
def test_a_turn_beyond_the_context_cuts_no_load_test_short(
    error: str, tokens: int, is_whole: bool
) -> None:
    run = stamped(TRACE, CACHING)
    failed = {"status": "failed", "error": error, "prompt_tokens": tokens}
    run = replace(run, requests=run.requests.assign(asked_output_tokens=6))
    run = changed(run, run.requests["request_id"][3], **failed)
    run = replace(run, scenario={**run.scenario, "lanes": {}})
    run.extra["delivered"] = {"stopped": None, "failures": {error: 1}}
    with nullcontext() if is_whole else pytest.raises(EndedEarly, match="failures"):
        verifier.require_complete(run, None, 2048)
    with pytest.raises(EndedEarly, match="failures"):
        verifier.require_complete(replace(run, scenario={}), None, 2048)


def test_a_trace_of_which_no_turn_fits_is_refused(calibrator: FakeCalibrator) -> None:
    long = [replace(request, prompt_tokens=10**6) for request in TRACE]
    with pytest.raises(LoadTestError, match="30 of 30 requests are longer"):
        verified(calibrator, trace=TRACE.replaced(long, ""), profile=CACHING)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--utilisation", 0.5), "--utilisation: lanes are a load by themselves"),
        (("--technique", "prefix-cache"), "--lanes: not with --technique"),
        (("--recorded", "run"), "--lanes: sends a load; --recorded takes one that was sent"),
    ],
)
def test_lanes_that_do_not_go_with_another_option(options: tuple[object, ...], line: str) -> None:
    assert line in refused("verify", "--lanes", "2", *options)
