"""Invariants over random workloads: conservation, budgets, and macro-steps that change nothing."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.policies.config import PolicyConfig
from servetwin.policies.registry import MEMORIES
from servetwin.sim.core.simulate import simulate
from servetwin.workloads.request import Request
from tests.support.checked import CheckedScheduler, request
from tests.support.effort import examples
from tests.support.random_runs import (
    STEP_TIME,
    Clock,
    every_scheduler,
    policies,
    run_checked,
    workloads,
)


@every_scheduler
@settings(max_examples=examples(60))
@given(data=st.data(), requests=workloads())
def test_macro_steps_equal_single_steps_and_every_invariant_holds(
    batching: str, data: st.DataObject, requests: list[Request]
) -> None:
    config = data.draw(policies(batching))
    clock: Clock = data.draw(st.sampled_from(get_args(Clock)))
    single = run_checked(config, requests, False, clock)
    macro = run_checked(config, requests, True, clock)
    pd.testing.assert_frame_equal(single.requests, macro.requests, check_exact=True)
    assert single.extra["simulation"]["steps"] == macro.extra["simulation"]["steps"]
    assert single.pauses.equals(macro.pauses)


@every_scheduler
@settings(max_examples=examples(25))
@given(data=st.data(), requests=workloads())
def test_every_request_ends_once_and_no_stamp_precedes_its_cause(
    batching: str, data: st.DataObject, requests: list[Request]
) -> None:
    config = data.draw(policies(batching))
    frame = run_checked(config, requests, macro=True).requests
    assert frame["request_id"].tolist() == [r.request_id for r in requests]
    assert set(frame["status"]) <= {"finished", "refused"}
    done = frame[frame["status"] == "finished"]
    asked = {r.request_id: r.output_tokens * r.samples for r in requests}
    assert [asked[name] for name in done["request_id"]] == done["output_tokens"].tolist()
    assert (done["queue_s"] >= 0).all()
    assert (done["first_token_s"] > done["scheduled_s"] + done["queue_s"]).all()
    assert (done["last_token_s"] >= done["first_token_s"]).all()
    assert (done["cached_tokens"] < done["prompt_tokens"]).all()
    assert not done["error"].any()


@every_scheduler
@pytest.mark.parametrize("kv", MEMORIES)
def test_the_same_seed_gives_the_same_bytes(batching: str, kv: str) -> None:
    requests = [request(str(i), i * 0.01, 5 + i % 7, 3 + i % 5) for i in range(40)]
    small = PolicyConfig(batching=batching, kv=kv, kv_tokens=96, max_model_len=32)
    first = run_checked(small, requests, macro=True).requests.to_csv()
    assert first == run_checked(small, requests, macro=True).requests.to_csv()


@given(requests=workloads(), factor=st.sampled_from([0.5, 2.0, 8.0]))
def test_scaling_all_times_scales_all_latencies(requests: list[Request], factor: float) -> None:
    config = PolicyConfig(kv_tokens=160, max_model_len=70, token_budget=16, max_seqs=4)
    slow_model = STEP_TIME.scaled(factor)
    slow = [replace(r, arrival_s=factor * r.arrival_s) for r in requests]
    fast_run = simulate(requests, CheckedScheduler(config), STEP_TIME)
    slow_run = simulate(slow, CheckedScheduler(config), slow_model)
    columns = ["ttft_s", "tpot_s", "e2e_s"]
    np.testing.assert_allclose(
        fast_run.requests[columns] * factor, slow_run.requests[columns], rtol=1e-9
    )


@pytest.mark.parametrize("output", [1, 2, 50])
def test_a_lone_request_takes_its_prefill_and_its_decodes(output: int) -> None:
    prompt = 20
    run = simulate([request("a", 1.5, prompt, output)], CheckedScheduler(PolicyConfig()), STEP_TIME)
    prefill_s = 0.010 + 16 * 0.0003 + 4 * 0.0005 + 1e-6 * prompt * (prompt + 1) / 2
    decode_s = sum(0.010 + 0.001 + 0.0003 + 1e-5 * (prompt + k) for k in range(1, output))
    assert run.requests["ttft_s"][0] == pytest.approx(prefill_s, rel=1e-9)
    assert run.requests["e2e_s"][0] == pytest.approx(prefill_s + decode_s, rel=1e-9)


def test_preemption_is_reached_by_these_workloads() -> None:
    config = PolicyConfig(kv_tokens=72, block_tokens=4, max_model_len=70)
    scheduler = CheckedScheduler(config)
    simulate([request(str(i), 0.0, 10, 30) for i in range(8)], scheduler, STEP_TIME)
    assert scheduler.preemptions > 0
