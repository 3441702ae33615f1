"""Task graphs: the simulator and the load tester send the same requests, after the same others."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from servetwin.loadtest.endpoint import probe
from servetwin.loadtest.run.client import LoadOptions, run_load_test
from servetwin.policies.config import PolicyConfig
from servetwin.sim.core.cluster import simulate_cluster
from servetwin.sim.core.pools import Pool
from servetwin.sim.step_times.step_time import LinearStepTime
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.loadtest_server import Reply, ScriptedServer, stream_of

FAILS = 9
"""A request for so many tokens fails on both sides."""
POOLS = [Pool(PolicyConfig(max_model_len=60), LinearStepTime.of({"constant": 0.001}))]


def simulated(trace: Trace, *, fail_fast: bool = False) -> pd.DataFrame:
    run = simulate_cluster(trace.requests, POOLS, fail_fast=fail_fast)
    return run.requests.set_index("request_id").sort_index()


def live(trace: Trace, **options: Any) -> pd.DataFrame:
    def script(body: dict[str, Any]) -> Reply:
        tokens = body["max_tokens"]
        return Reply(status=500) if tokens == FAILS else stream_of(tokens)

    with ScriptedServer(script).running() as server:
        run = run_load_test(probe(server.url), trace, options=LoadOptions(**options))
    return run.requests.set_index("request_id").sort_index()


def asked(name: str, parents: tuple[str, ...] = (), delay_s: float = 0.0, **more: Any) -> Request:
    tokens = {"prompt_tokens": 5, "output_tokens": 2, **more}
    return Request(name, 0.0, **tokens, parent_ids=parents, delay_s=delay_s if parents else None)


FAILING = {"prompt_tokens": 100, "output_tokens": FAILS}


def random_tasks(seed: int) -> Iterator[Request]:
    """Tasks in which each request waits for up to three earlier ones; some requests fail."""
    rng = np.random.default_rng(seed)
    for task in range(40):
        for place in range(rng.integers(1, 9)):
            parents = rng.choice(place, min(place, int(rng.integers(0, 4))), replace=False)
            names = tuple(f"{task}.{parent}" for parent in parents)
            lengths = FAILING if rng.random() < 0.25 else {"output_tokens": int(rng.integers(1, 5))}
            yield asked(f"{task}.{place}", names, rng.choice([0.0, 0.01]).item(), **lengths)


@pytest.mark.parametrize("processes", [1, 2])
def test_both_sides_send_the_same_requests_after_the_same_others(processes: int) -> None:
    trace = Trace(tuple(random_tasks(processes)), "tasks")
    sides = {"simulated": simulated(trace), "live": live(trace, processes=processes)}
    ends = {
        name: side["status"].replace({"refused": "failed"}).to_dict()
        for name, side in sides.items()
    }
    assert ends["simulated"] == ends["live"]
    assert {*ends["live"].values()} == {"finished", "failed", "cancelled"}
    for side in sides.values():
        for request in trace:
            parents = list(request.parent_ids)
            answered = (side["status"][parents] == "finished").tolist()
            if not parents or all(answered):
                last_s = side["last_token_s"][parents].max() if parents else 0.0
                waited_s = side["sent_s"][request.request_id] - last_s
                assert waited_s >= (request.delay_s or 0.0) - 1e-9
            is_cancelled = side["status"][request.request_id] == "cancelled"
            assert is_cancelled == (bool(parents) and not any(answered))


FORK = Trace(
    (
        asked("plan"),
        asked("fails", ("plan",), **FAILING),
        asked("slow", ("plan",), 0.3),
        asked("after-it", ("slow",)),
        asked("join", ("plan", "fails", "slow")),
        asked("other task"),
    ),
    "fork",
)


@pytest.mark.parametrize(
    ("fail_fast", "not_sent"), [(False, set()), (True, {"slow", "after-it", "join"})]
)
def test_a_child_that_fails_releases_its_join_or_ends_the_task(
    fail_fast: bool, not_sent: set[str]
) -> None:
    for side in (simulated(FORK, fail_fast=fail_fast), live(FORK, fail_fast=fail_fast)):
        assert {*side.index[side["status"] == "cancelled"]} == not_sent
        assert {*side.index[side["status"] == "finished"]} == {*side.index} - not_sent - {"fails"}


def test_the_reason_of_a_task_that_ended_is_given() -> None:
    errors = simulated(FORK, fail_fast=True)["error"]
    assert errors["slow"] == "cancelled: its task ended without an answer to 'fails'"
