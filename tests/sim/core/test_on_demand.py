"""Replicas that run ahead on their own do what they do step by step, and need no events."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.app.cli import is_compiled
from servetwin.policies.config import PolicyConfig
from servetwin.policies.registry import ROUTERS
from servetwin.policies.routers.replica_loads import RouterConfig
from servetwin.sim.core.cluster import simulate_cluster
from servetwin.sim.core.kv_transfer import KVLink
from servetwin.sim.core.pools import Pool
from servetwin.sim.core.recorder import USAGE_COLUMNS, Recorder
from servetwin.sim.records.metrics import REQUEST_COLUMNS
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.acceptance import Chain
from servetwin.workloads.request import Request
from tests.support.call_counts import calls_of
from tests.support.checked import CheckedScheduler, request
from tests.support.effort import examples
from tests.support.random_runs import STEP_TIME, every_scheduler, policies, workloads

LINK = KVLink(0.01, 0.001)
FAR_S = 1e5
"""A pair of requests so late that all others have ended."""


def run(
    requests: list[Request],
    pools: list[Pool],
    router: RouterConfig,
    *,
    in_events: bool = False,
    macro: bool = True,
    keep_usage: bool = False,
) -> Run:
    """Simulate; ``in_events`` adds a late loop of two requests, so no replica may run ahead."""
    if in_events:
        late = request("late", FAR_S)
        requests = [*requests, late, replace(request("later"), parent_ids=("late",), delay_s=1.0)]
    return simulate_cluster(
        requests, pools, router, RouterConfig("power-of-two"), LINK,
        recorder=Recorder(keep_usage=keep_usage), closed_loop=in_events, macro=macro,
        build=CheckedScheduler,
    )  # fmt: skip


def early(of: Run) -> tuple[object, ...]:
    """Return what happened before the late pair, in full."""
    assert of.steps["end_s"].is_monotonic_increasing
    assert of.pauses["preempted_s"].is_monotonic_increasing
    requests, steps, pauses = (
        frame[frame[stamp] < FAR_S].reset_index(drop=True).to_csv()
        for frame, stamp in (
            (of.requests[[*REQUEST_COLUMNS]], "scheduled_s"),
            (of.steps.sort_values(["end_s", "replica"], kind="stable"), "start_s"),
            (of.pauses.sort_values(["preempted_s", "row"], kind="stable"), "preempted_s"),
        )
    )
    return requests, steps, pauses


@every_scheduler
@settings(max_examples=examples(15))
@given(
    data=st.data(),
    requests=workloads(),
    router=st.sampled_from(list(ROUTERS)),
    staleness_s=st.sampled_from([0.0, 0.02]),
    keep_usage=st.booleans(),
)
def test_running_ahead_changes_nothing_under_any_policies(
    batching: str,
    data: st.DataObject,
    requests: list[Request],
    router: str,
    staleness_s: float,
    keep_usage: bool,
) -> None:
    config = data.draw(policies(batching))
    pools = [Pool(config, STEP_TIME, 2), Pool(config, STEP_TIME.scaled(0.5), speed=2.0)]
    routed = RouterConfig(router, staleness_s, imbalance_requests=1)
    ahead = run(requests, pools, routed, keep_usage=keep_usage)
    in_events = run(requests, pools, routed, in_events=True, keep_usage=keep_usage)
    single = run(requests, pools, routed, macro=False)
    assert early(ahead) == early(in_events)
    assert ahead.requests.equals(single.requests)
    assert ahead.extra["simulation"]["steps"] == single.extra["simulation"]["steps"]


@settings(max_examples=examples(30))
@given(data=st.data(), requests=workloads(), router=st.sampled_from(list(ROUTERS)))
def test_decodes_that_run_ahead_of_transfers_change_nothing(
    data: st.DataObject, requests: list[Request], router: str
) -> None:
    batchings = ["insertion", "continuous", "prefill-first", "chunked"]
    config = data.draw(policies(data.draw(st.sampled_from(batchings))))
    pools = [Pool(config, STEP_TIME, 2, role) for role in ("prefill", "decode")]
    routed = RouterConfig(router)
    ahead = run(requests, pools, routed)
    assert early(ahead) == early(run(requests, pools, routed, in_events=True))
    single = run(requests, pools, routed, macro=False)
    assert ahead.requests.equals(single.requests)
    moved, moved_singly = (
        of.handovers.sort_values("row", ignore_index=True) for of in (ahead, single)
    )
    assert moved.equals(moved_singly)


@settings(max_examples=examples(40))
@given(requests=workloads(), router=st.sampled_from(list(ROUTERS)))
def test_drafts_that_are_verified_ahead_change_nothing(
    requests: list[Request], router: str
) -> None:
    """The draws of a request are its own, whichever replica verifies them, and when."""
    config = PolicyConfig(
        "unified", kv_tokens=160, block_tokens=4, max_model_len=70, max_seqs=3, draft_rows=2
    )
    pools = [Pool(config, STEP_TIME, 3, acceptance=Chain(0.7, 2))]
    ahead = run(requests, pools, RouterConfig(router))
    assert early(ahead) == early(run(requests, pools, RouterConfig(router), in_events=True))
    assert ahead.requests.equals(run(requests, pools, RouterConfig(router), macro=False).requests)


MANY = [request(str(i), 0.004 * i, 5 + i % 7, 3 + i % 5) for i in range(400)]
ROOM = PolicyConfig(kv_tokens=1000, max_model_len=64)


@pytest.mark.parametrize("router", ROUTERS)
def test_replicas_that_run_ahead_need_no_events(router: str) -> None:
    pools = [Pool(ROOM, STEP_TIME, 4)]
    calls = calls_of(lambda: simulate_cluster(MANY, pools, RouterConfig(router)))
    in_events = calls_of(lambda: simulate_cluster(MANY, pools, RouterConfig(router), macro=False))
    assert calls["_on_alarm"] == calls["_ring"] == 0
    assert min(in_events["_on_alarm"], in_events["_ring"]) > 300


def test_only_replicas_that_get_a_request_catch_up_where_no_loads_are_read() -> None:
    """A request lets one replica catch up; a router that reads loads, all with decisions due."""
    pools = [Pool(ROOM, STEP_TIME, 200)]
    catches = {
        name: calls_of(partial(simulate_cluster, MANY, pools, RouterConfig(name)))
        for name in ("round-robin", "least-outstanding")
    }
    assert catches["round-robin"]["catch_up"] <= len(MANY) + 200
    assert catches["least-outstanding"]["catch_up"] <= 8 * len(MANY)


@pytest.mark.skipif(is_compiled(), reason="a profiler does not see calls of compiled methods")
def test_loads_are_kept_for_routers_that_may_read_them_and_for_no_others(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from servetwin.policies.routers.routing import RoundRobin\n"
        "class Mine(RoundRobin):\n"
        "    def choose(self, request, now_s):\n"
        "        requests = self._loads.requests(now_s)\n"
        "        return requests.index(min(requests))\n"
    )
    pools = [Pool(ROOM, STEP_TIME, 4)]
    names = ("round-robin", "least-outstanding", f"{path}:Mine")
    changes = []
    for name in names:
        calls = calls_of(partial(simulate_cluster, MANY, pools, RouterConfig(name)))
        changes.append((calls["sent"], calls["take_out"]))
    assert changes == [(0, 0), (len(MANY), len(MANY)), (len(MANY), len(MANY))]
    mine = RouterConfig(names[-1])
    places = run(MANY, pools, mine).requests["replica"]
    assert places.equals(run(MANY, pools, mine, macro=False).requests["replica"])
    assert places.tolist() != [row % 4 for row in range(len(MANY))], "it read no loads"


def test_a_router_that_reads_only_at_first_leaves_no_notes(tmp_path: Path) -> None:
    """Decisions are noted for a router that reads loads, until they are four for each replica."""
    path = tmp_path / "mine.py"
    path.write_text(
        "class Mine:\n"
        "    def __init__(self, loads, config, rng):\n"
        "        self.loads, self.next = loads, 0\n"
        "    def choose(self, request, now_s):\n"
        "        self.next += 1\n"
        "        if self.next == 9:\n"
        "            self.loads.requests(now_s)\n"
        "        return self.next % len(self.loads)\n"
    )
    pools, router = [Pool(ROOM, STEP_TIME, 4)], RouterConfig(f"{path}:Mine")
    calls = calls_of(partial(simulate_cluster, MANY, pools, router))
    assert calls["_note"] < 5 * 4
    assert run(MANY, pools, router).requests.equals(run(MANY, pools, router, macro=False).requests)


@pytest.mark.parametrize("router", ["round-robin", "least-tokens", "prefix-affinity"])
def test_a_request_makes_as_many_calls_among_many_replicas(router: str) -> None:
    """Each replica has the same load; building the replicas counts for nothing."""
    costs = []
    for replicas in (4, 100):
        few, many = (
            calls_of(partial(simulate_cluster, requests, pools, RouterConfig(router))).total()
            for pools in ([Pool(ROOM, STEP_TIME, replicas)],)
            for requests in (spread(replicas, 200), spread(replicas, 600))
        )
        costs.append(many - few)
    assert costs[1] <= 1.5 * costs[0] + 100  # a compiled core shows no calls


def spread(replicas: int, count: int) -> list[Request]:
    """Return requests of which each replica gets one in 60 ms."""
    gap_s = 0.06 / replicas
    return [request(str(i), gap_s * i, 5 + i % 7, 3 + i % 5) for i in range(count)]


def test_the_memory_of_each_replica_is_in_its_own_rows() -> None:
    recorder = Recorder(keep_usage=True)
    pools = [Pool(ROOM, STEP_TIME, 3)]
    steps = simulate_cluster(MANY, pools, RouterConfig("least-tokens"), recorder=recorder).steps
    parts = steps[[name for name in USAGE_COLUMNS if name.endswith("_tokens")]]
    assert (parts["free_tokens"] + parts["cached_tokens"] == steps["free_kv_tokens"]).all()
    assert steps["replica"].nunique() == 3
