"""A scheduler of lists is asked rarely, decides as one that is asked always, and is audited."""

from itertools import accumulate
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.schedulers import fast_forward
from servetwin.sim.core.simulate import simulate
from servetwin.sim.records.run import Run
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.request import Request
from tests.support.checked import request
from tests.support.plain_lists import Alternates, Counts, Doubles, Lists
from tests.support.random_runs import STEP_TIME

SMALL = {"kv_tokens": 64, "block_tokens": 4, "max_model_len": 64, "max_seqs": 4, "token_budget": 8}


@pytest.fixture(autouse=True)
def _told_anew() -> None:
    fast_forward._tell.cache_clear()


def run_of(batching: Any, requests: list[Request], macro: bool = True, **settings: Any) -> Run:
    config = PolicyConfig(**{**SMALL, "batching": batching, **settings})
    return simulate(requests, build_scheduler(config, check=True), STEP_TIME, macro=macro)


def asked(monkeypatch: pytest.MonkeyPatch, requests: list[Request], policy: type[Lists]) -> int:
    """Return how often a policy is asked for a step."""
    counts = [0]

    class Asked(policy):  # type: ignore[misc, valid-type]
        def plan(self, now_s: float) -> fast_forward.Plan:
            counts[0] += 1
            return super().plan(now_s)  # type: ignore[no-any-return]

    run_of(Asked, requests, kv_tokens=256)
    return counts[0]


@given(
    sizes=st.lists(
        st.tuples(st.sampled_from([0.0, 0.0, 0.03, 0.4]), st.integers(1, 24), st.integers(1, 24)),
        min_size=1,
        max_size=12,
    ),
    max_seqs=st.integers(1, 5),
    budget=st.integers(5, 20),
    blocks=st.integers(12, 20),
    order=st.sampled_from(["fcfs", "sjf"]),
    cache=st.booleans(),
    index=st.sampled_from(["radix", "blocks"]),
)
def test_lists_decide_as_chunked_prefill_does(
    sizes: list[tuple[float, int, int]], max_seqs: int, budget: int, blocks: int, order: str,
    cache: bool, index: str,
) -> None:  # fmt: skip
    arrivals = accumulate(gap for gap, _, _ in sizes)
    requests = [
        request(f"r{place}", at, prompt, output, (place % 2, 7, 8))
        for place, (at, (_, prompt, output)) in enumerate(zip(arrivals, sizes, strict=True))
    ]
    settings: dict[str, Any] = {
        "max_seqs": max_seqs, "token_budget": budget, "kv_tokens": 4 * blocks,
        "queue_order": order, "prefix_cache": cache, "prefix_index": index,
    }  # fmt: skip
    runs = [run_of(Lists, requests, macro, **settings).requests for macro in (True, False)]
    pd.testing.assert_frame_equal(runs[0], runs[1])
    if not cache:  # else chunked finds in a step what it computes itself
        pd.testing.assert_frame_equal(runs[0], run_of("chunked", requests, **settings).requests)


def test_a_policy_is_not_asked_while_its_answer_would_be_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After the audits a stretch is one question: the prompts, the stretch, the last of it."""
    monkeypatch.setattr(fast_forward, "FIRST_AUDITS", 0)
    assert asked(monkeypatch, [request("a", 0.0, 4, 50), request("b", 0.0, 4, 50)], Lists) == 2
    monkeypatch.setattr(fast_forward, "FIRST_AUDITS", 1)
    assert asked(monkeypatch, [request("a", 0.0, 4, 50), request("b", 0.0, 4, 50)], Lists) == 50


def test_a_policy_that_changes_its_mind_is_asked_always_and_one_line_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    requests = [request(name, 0.0, 4, 40) for name in "abcd"]
    run = run_of(Counts, requests).requests
    pd.testing.assert_frame_equal(run, run_of(Counts, requests, macro=False).requests)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "Counts changed a step of decodes although nothing had happened"
    ]


def test_decodes_that_pause_go_on_where_they_were() -> None:
    run = run_of(Alternates, [request(name, 0.0, 5, 9) for name in "abc"])
    assert (run.requests["status"] == "finished").all()
    assert run.requests["output_tokens"].tolist() == [9, 9, 9]
    assert run.steps["steps"].sum() > 2 + 8  # as many as without a pause


def test_a_sequence_that_is_planned_twice_is_refused() -> None:
    with pytest.raises(PolicyError, match="plan: a sequence is in the step twice"):
        run_of(Doubles, [request("a")])


def test_several_answers_to_a_prompt_are_refused() -> None:
    wants_two = Request("a", 0.0, 4, 4, samples=2)
    assert run_of(Lists, [wants_two]).requests["status"].tolist() == ["refused"]
