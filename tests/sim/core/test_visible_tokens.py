"""The first visible token: the one behind the reasoning, in the step that really brings it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.policies.batch import Batch
from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import Refusal
from servetwin.policies.sequence import Sequence
from servetwin.sim.core.cluster import simulate_cluster
from servetwin.sim.core.kv_transfer import KVLink
from servetwin.sim.core.pools import Pool
from servetwin.sim.core.simulate import simulate
from servetwin.sim.records.metrics import REASONING_COLUMNS, SLO, summarize
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.acceptance import Chain
from servetwin.sim.step_times.step_time import ApiLatency, LinearStepTime
from servetwin.workloads.request import Request
from tests.support.checked import CheckedScheduler
from tests.support.drafted_runs import Scripted, drafted_run
from tests.support.effort import examples
from tests.support.random_runs import STEP_TIME, every_scheduler, policies, workloads

SECOND = LinearStepTime.of({"constant": 1.0})
STORY = [
    Request("thinks", 0.0, 4, 6, reasoning_tokens=2),
    Request("answers", 0.0, 4, 6),
    Request("says nothing", 0.0, 4, 3, reasoning_tokens=3),
    Request("begins to speak at its end", 10.0, 4, 5, reasoning_tokens=4),
]


def run_of(requests: list[Request], **options: Any) -> pd.DataFrame:
    config = PolicyConfig(kv_tokens=400, max_model_len=100)
    return simulate(requests, CheckedScheduler(config), SECOND, **options).requests


@pytest.mark.parametrize("macro", [True, False])
def test_a_short_story(macro: bool) -> None:
    """Steps of a second: token n is out n seconds after the prompts were taken in."""
    frame = run_of(STORY, macro=macro)
    assert frame["first_token_s"].tolist() == [1, 1, 1, 11]
    assert frame["first_output_s"].tolist()[:2] == [3, 1]
    assert np.isnan(frame["first_output_s"][2])
    assert frame["first_output_s"][3] == frame["last_token_s"][3] == 15
    assert frame["ttfo_s"].tolist()[:2] == [3, 1]
    assert frame["reasoning_tokens"].tolist() == [2, 0, 3, 4]


def test_the_client_has_it_as_late_as_every_token() -> None:
    frame = run_of(STORY[:1], api=ApiLatency(chunk_s=0.25))
    assert (frame["first_token_s"][0], frame["first_output_s"][0]) == (1.25, 3.25)


def test_where_no_request_reasons_there_are_no_columns_and_no_figures() -> None:
    frame = run_of([replace(request, reasoning_tokens=None) for request in STORY])
    assert not set(REASONING_COLUMNS) & set(frame)
    summary = summarize(frame)
    assert not {"ttfo_s", "reasoning_tokens"} & {*summary, *summary["steady"]}


def test_figures_and_limits_are_of_the_first_visible_token() -> None:
    frame = run_of(STORY)
    summary = summarize(frame, SLO(ttfo_s=3.0))
    assert (summary["ttfo_s"]["count"], summary["ttfo_s"]["max"]) == (3, 5.0)
    assert (summary["reasoning_tokens"], summary["output_tokens"]) == (9, 20)
    assert summary["slo_attainment"] == 0.5  # an answer without a visible token keeps no limit
    assert summarize(frame, SLO(ttft_s=3.0))["slo_attainment"] == 1.0
    plain = run_of([replace(request, reasoning_tokens=None) for request in STORY])
    assert summarize(plain, SLO(ttfo_s=0.5))["slo_attainment"] == 0.0
    assert summarize(plain, SLO(ttfo_s=1.0))["slo_attainment"] == 1.0


class Counting(CheckedScheduler):
    """Notes after which step a sequence has more tokens than are hidden."""

    def __init__(self, config: PolicyConfig, hidden: list[int]) -> None:
        super().__init__(config)
        self.hidden, self.steps = hidden, 0
        self.seen: list[Sequence] = []
        self.visible: dict[int, int] = {}

    def add(self, seq: Sequence) -> Refusal | None:
        self.seen.append(seq)
        return super().add(seq)

    def complete(self, batch: Batch, steps: int = 1) -> list[Sequence]:
        assert steps == 1
        finished = super().complete(batch, steps)
        for seq in self.seen:
            if seq.generated_tokens > self.hidden[seq.number]:
                self.visible.setdefault(seq.number, self.steps)
        self.steps += 1
        return finished


@every_scheduler
@settings(max_examples=examples(25))
@given(data=st.data(), requests=workloads())
def test_its_stamp_is_the_end_of_the_step_that_brings_it(
    batching: str, data: st.DataObject, requests: list[Request]
) -> None:
    """Counted independently, step by step; macro-steps give the same (``test_invariants``)."""
    hidden = [request.reasoning_tokens or 0 for request in requests]
    scheduler = Counting(data.draw(policies(batching)), hidden)
    run = simulate(requests, scheduler, STEP_TIME, macro=False)
    if not any(hidden):
        assert "first_output_s" not in run.requests
        return
    ends_s = run.steps["end_s"].tolist()
    for row, found in enumerate(run.requests.to_dict("records")):
        stamp_s = found["first_output_s"]
        if found["status"] != "finished":
            continue
        if not hidden[row]:
            assert stamp_s == found["first_token_s"]
        elif row in scheduler.visible:
            assert stamp_s == ends_s[scheduler.visible[row]]
            assert found["first_token_s"] <= stamp_s <= found["last_token_s"]
        else:
            assert np.isnan(stamp_s)
            assert found["reasoning_tokens"] == found["output_tokens"]


THINKING = [
    Request(str(n), 0.05 * n, 5 + n % 7, 1 + 5 * n % 23, reasoning_tokens=(n * 7) % 13)
    for n in range(40)
]


def pools(kind: str) -> list[Pool]:
    policy = PolicyConfig(kv_tokens=400, max_model_len=70, max_seqs=8)
    if kind == "ranks":
        return [Pool(policy, STEP_TIME, ranks=3)]
    if kind == "apart":
        decode = Pool(policy, STEP_TIME, role="decode", replicas=2)
        return [Pool(policy, STEP_TIME, role="prefill", replicas=2), decode]
    return [Pool(policy, STEP_TIME, replicas=3)]


@pytest.mark.parametrize("kind", ["replicas", "ranks", "apart"])
def test_many_servers_stamp_it_alike_by_steps_and_by_runs_of_steps(kind: str) -> None:
    def run(macro: bool) -> Run:
        link = KVLink(0.001)
        return simulate_cluster(THINKING, pools(kind), link=link, closed_loop=False, macro=macro)

    found = run(True).requests
    pd.testing.assert_frame_equal(found, run(False).requests, check_exact=True)
    speaks = found["reasoning_tokens"] < found["output_tokens"]
    assert found["first_output_s"].notna().tolist() == speaks.tolist()
    assert speaks.sum() > 20
    assert (found["first_output_s"] <= found["last_token_s"])[speaks].all()


def test_tokens_of_a_pass_come_together() -> None:
    """After the first token 3, 1 and 3 come: 4, 5 and 8 are out after passes 2, 3 and 4."""
    config = PolicyConfig(kv_tokens=200, max_model_len=60, draft_rows=2, block_tokens=4)
    law = Scripted(3, 1, 3, 3)
    for hidden, passes in ((1, 2), (3, 2), (4, 3), (5, 4), (7, 4)):
        requests = [Request("a", 0.0, 4, 12, reasoning_tokens=hidden)]
        found = drafted_run(config, requests, law, step_time=SECOND).requests
        assert found["first_output_s"].tolist() == [float(passes)]


@pytest.mark.parametrize("drafts", [1, 3])
def test_drafts_stamp_it_alike_by_passes_and_by_runs_of_passes(drafts: int) -> None:
    config = PolicyConfig(kv_tokens=400, max_model_len=80, draft_rows=drafts, block_tokens=4)
    found, single = (
        drafted_run(config, THINKING, Chain(0.7, drafts), macro=macro).requests
        for macro in (True, False)
    )
    pd.testing.assert_frame_equal(found, single, check_exact=True)
    assert found["first_output_s"].notna().sum() > 20
