"""Figures of tasks: a story of two, one of which fails."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from servetwin.policies.config import PolicyConfig
from servetwin.sim.core.cluster import simulate_cluster
from servetwin.sim.core.pools import Pool
from servetwin.sim.records.metrics import SLO, margins
from servetwin.sim.records.run import Run, load_run
from servetwin.sim.records.tasks import task_of
from servetwin.sim.step_times.step_time import LinearStepTime
from servetwin.workloads.errors import TraceError
from servetwin.workloads.request import Request

POOLS = [Pool(PolicyConfig(max_model_len=60), LinearStepTime.of({"constant": 1.0}), 4)]


def asked(name: str, output: int, *parents: str, prompt: int = 10, turn: int = 0) -> Request:
    delay_s = 2.0 if parents else None
    return Request(name, 1.0, prompt, output, turn=turn, parent_ids=parents, delay_s=delay_s)


TASKS = (
    asked("plan", 3),
    asked("fast", 1, "plan"),
    asked("slow", 5, "plan"),
    asked("join", 2, "plan", "fast", "slow", turn=1),
    asked("other", 2),
    asked("too long", 1, "other", prompt=100, turn=1),
    asked("alone", 1),
)


def run_of(requests: tuple[Request, ...]) -> Run:
    return simulate_cluster(requests, POOLS)


def test_a_task_takes_from_its_first_request_to_its_last_token() -> None:
    run = run_of(TASKS)
    summary = run.summary()
    tasks, times = summary["tasks"], summary["task_s"]
    assert (tasks["total"], tasks["finished"]) == (3, 2)
    assert times["max"] == pytest.approx(3 + 2 + 5 + 2 + 2, abs=1e-6)
    assert times["mean"] == pytest.approx((14 + 1) / 2, abs=1e-6)
    assert tasks["turns"]["max"] == 4
    assert tasks["tokens"]["mean"] == pytest.approx((51 + 112 + 11) / 3)
    assert tasks["per_hour"] == pytest.approx(2 * 3600 / 14, rel=1e-6)
    by_turn = [(row["from_turn"], row["requests"]) for row in tasks["by_turn"]]
    assert by_turn == [(0, 5), (1, 1)]


def test_figures_of_tasks_need_no_frame_and_are_those_of_one() -> None:
    run = run_of(TASKS)
    columns = run.table("requests")
    figures = run.summary(SLO(task_s=14.5))
    assert run.table("requests") is columns
    columns["warm_up"] = np.array([name == "fast" for name in columns["request_id"]])
    warm = run.summary()
    assert warm["tasks"]["total"] == figures["tasks"]["total"] - 1, "its task is left out"
    frame = run.requests
    assert warm == run.summary()
    assert figures == replace(run, requests=frame.drop(columns="warm_up")).summary(SLO(task_s=14.5))


def test_a_limit_on_tasks_counts_for_all_their_requests() -> None:
    requests = run_of(TASKS).requests.set_index("request_id")
    good = {"plan", "fast", "slow", "join", "alone"}
    assert {*requests.index[SLO(task_s=14.5).met(requests)]} == good
    assert {*requests.index[SLO(task_s=13.5).met(requests)]} == {"alone"}
    assert margins(requests, SLO(task_s=7.0))[0] == pytest.approx(2.0)


def test_the_task_of_a_request_is_all_that_waits_for_each_other(tmp_path: Path) -> None:
    run = run_of(TASKS)
    slowest = task_of(run.requests)
    assert slowest is not None
    assert slowest["request_id"].tolist() == ["plan", "fast", "slow", "join"]
    assert slowest["parents"].tolist()[-1] == ["plan", "fast", "slow"]
    names = run.requests["request_id"].tolist()
    assert task_of(run.requests, names.index("alone")) is None
    other = task_of(run.requests, names.index("too long"))
    assert other is not None
    assert other["request_id"].tolist() == ["other", "too long"]
    kept = task_of(load_run(run.save(tmp_path / "run")).requests)
    assert kept is not None
    assert [*map(list, kept["parents"])] == slowest["parents"].tolist()
    assert task_of(run_of(TASKS[-1:]).requests) is None
    assert task_of(run_of(TASKS[4:6]).requests) is None  # it failed, so it has no time


def test_a_task_names_its_sessions() -> None:
    named = [replace(request, session_id=request.request_id[:1]) for request in TASKS[:4]]
    assert run_of(tuple(named)).requests["session"].tolist() == ["p", "f", "s", "j"]
    assert run_of(TASKS).requests["session"].tolist() == [""] * len(TASKS)


def test_without_links_there_are_no_tasks() -> None:
    run = run_of(tuple(replace(request, parent_ids=()) for request in TASKS))
    assert "tasks" not in run.summary()
    with pytest.raises(TraceError, match="no request waits for another one"):
        SLO(task_s=1.0).met(run.requests)
    users = run_of(tuple(replace(request, tenant="user-1") for request in TASKS))
    assert "tasks" not in users.summary()
