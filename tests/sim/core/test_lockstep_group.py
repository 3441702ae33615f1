"""Ranks that share experts step together, end with the slowest, and lose nothing."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.policies.batch import BatchShape
from servetwin.policies.config import PolicyConfig
from servetwin.policies.registry import ROUTERS
from servetwin.policies.routers.replica_loads import RouterConfig
from servetwin.sim.core.cluster import simulate_cluster
from servetwin.sim.core.pools import Pool
from servetwin.sim.core.recorder import Recorder
from servetwin.sim.core.replica import Stalled
from servetwin.sim.records.metrics import REQUEST_COLUMNS
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.step_time import FloatArray, LinearStepTime, NoiseSample, StepTime
from servetwin.workloads.request import Request
from tests.support.checked import CheckedScheduler, request
from tests.support.effort import examples
from tests.support.random_runs import every_scheduler, policies, workloads

FAR_S = 1e5
ALONE = LinearStepTime.of({"constant": 0.01, "rows_from_0": 0.001, "decode_context_tokens": 1e-5})
TWO = PolicyConfig(kv_tokens=64, block_tokens=4, max_model_len=32, max_seqs=2, token_budget=8)


class SharedExperts:
    """A second a row on the fullest rank, and 0.25 s a row of all; an idle rank has a dummy row."""

    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        return self.group_seconds([shape], steps)

    def group_seconds(self, shapes: Sequence[BatchShape], steps: int = 1) -> FloatArray:
        rows = [max(1, shape.rows) for shape in shapes]
        return np.full(steps, max(rows) + 0.25 * sum(rows))


def run(
    requests: list[Request],
    config: PolicyConfig = TWO,
    step_time: StepTime = ALONE,
    *,
    ranks: int = 2,
    replicas: int = 1,
    router: str = "round-robin",
    macro: bool = True,
    in_events: bool = False,
    noise: NoiseSample | None = None,
) -> Run:
    """Simulate; ``in_events`` adds a late loop of two requests, so no rank may run ahead."""
    if in_events:
        far = request("far", FAR_S)
        requests = [*requests, far, replace(request("farther"), parent_ids=("far",), delay_s=1.0)]
    pool = Pool(config, step_time, replicas, noise=noise, ranks=ranks)
    return simulate_cluster(
        requests, [pool], RouterConfig(router), recorder=Recorder(keep_usage=True),
        closed_loop=in_events, macro=macro, build=CheckedScheduler,
    )  # fmt: skip


def stamps(of: Run) -> pd.DataFrame:
    requests = of.requests[[*REQUEST_COLUMNS]][of.requests["scheduled_s"] < FAR_S]
    return requests.drop(columns=["replica", "error"]).reset_index(drop=True)


@pytest.mark.parametrize("macro", [True, False])
@pytest.mark.parametrize("in_events", [True, False])
def test_the_story_of_two_ranks_with_unequal_work(macro: bool, in_events: bool) -> None:
    requests = [
        request("long", 0.0, prompt=4, output=4),
        request("short", 0.0, prompt=2, output=1),
        request("late", 6.0, prompt=1, output=1),
        request("later", 10.0, prompt=1, output=2),
    ]
    told = run(requests, step_time=SharedExperts(), macro=macro, in_events=in_events)
    rows = stamps(told).set_index("request_id")
    # 0.00: prompts of 4 and 2 rows: 4 + 0.25 * 6 = 5.5
    # 5.50: a decode and a dummy row: 1 + 0.25 * 2 = 1.5
    # 7.00: "late" joins "long": 2 + 0.25 * 3 = 2.75
    # 9.75: the last decode of "long" and a dummy row: 1.5
    # 11.25: "later" alone on the second rank, and its decode
    assert rows["first_token_s"].to_dict() == {
        "long": 5.5, "short": 5.5, "late": 9.75, "later": 12.75,
    }  # fmt: skip
    assert rows["last_token_s"].to_dict() == {
        "long": 11.25, "short": 5.5, "late": 9.75, "later": 14.25,
    }  # fmt: skip
    steps = told.steps[told.steps["start_s"] < FAR_S]
    events = steps[["start_s", "end_s", "rows", "replica"]].to_numpy().tolist()
    if not macro:
        assert events == [
            [0.0, 5.5, 4, 0], [0.0, 5.5, 2, 1], [5.5, 7.0, 1, 0], [7.0, 9.75, 2, 0],
            [9.75, 11.25, 1, 0], [11.25, 12.75, 1, 1], [12.75, 14.25, 1, 1],
        ]  # fmt: skip


@every_scheduler
@patch("servetwin.sim.core.replica.MOST_PREEMPTIONS_IN_VAIN", 500)
@settings(max_examples=examples(15))
@given(
    data=st.data(),
    requests=workloads(),
    router=st.sampled_from(list(ROUTERS)),
    replicas=st.integers(1, 2),
)
def test_runs_of_steps_and_running_ahead_change_nothing(
    batching: str, data: st.DataObject, requests: list[Request], router: str, replicas: int
) -> None:
    config = data.draw(policies(batching))
    usual = partial(run, requests, config, replicas=replicas, router=router)
    ways = [usual, partial(usual, macro=False), partial(usual, in_events=True)]
    try:
        ahead = ways[0]()
    except Stalled:  # two answers to one prompt may preempt each other for ever
        for way in ways[1:]:
            with pytest.raises(Stalled, match="preempt each other forever"):
                way()
        return
    for other in (way() for way in ways[1:]):
        pd.testing.assert_frame_equal(stamps(ahead), stamps(other))
    finished = ahead.requests[ahead.requests["status"] == "finished"]
    asked = {one.request_id: one.output_tokens * one.samples for one in requests}
    assert finished["output_tokens"].tolist() == [asked[name] for name in finished["request_id"]]


@settings(max_examples=examples(25))
@given(requests=workloads(), noisy=st.booleans())
def test_no_step_ends_before_its_slowest_rank(requests: list[Request], noisy: bool) -> None:
    noise = NoiseSample(np.array([1.0, 1.5])) if noisy else None
    steps = run(requests, ranks=3, macro=False, noise=noise).steps
    alone_s = 0.01 + 0.001 * steps["rows"] + 1e-5 * steps["decode_context_tokens"]
    together = steps.assign(alone_s=alone_s).groupby("start_s")
    assert (together["end_s"].min() == together["end_s"].max()).all()
    lasted_s = together["end_s"].first() - together["end_s"].first().index.to_numpy()
    slowest_s = together["alone_s"].max()
    if noisy:
        assert (lasted_s > (1 - 1e-9) * slowest_s).all()
    else:
        np.testing.assert_allclose(lasted_s, slowest_s, rtol=1e-9, atol=1e-12)


@settings(max_examples=examples(25))
@given(requests=workloads())
def test_a_rank_among_idle_ones_is_an_ordinary_replica(requests: list[Request]) -> None:
    one = [replace(each, session_id="same") for each in requests]
    together = run(one, ranks=2, router="session-affinity")
    pd.testing.assert_frame_equal(stamps(together), stamps(run(one, ranks=1)))


@settings(max_examples=examples(25))
@given(requests=workloads())
def test_ranks_with_equal_work_are_as_fast_as_one(requests: list[Request]) -> None:
    twice = [
        replace(
            each, request_id=f"{each.request_id}.{copy}", prefix_block_ids=(), block_tokens=None
        )
        for each in requests
        for copy in range(2)
    ]
    together = stamps(run(twice))
    for copy in range(2):
        mine = together[together["request_id"].str.endswith(f".{copy}")]
        alone = stamps(run(twice[copy::2], ranks=1))
        pd.testing.assert_frame_equal(mine.reset_index(drop=True), alone)
