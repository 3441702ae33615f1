"""Laws over random workloads: conservation, budgets, and macro-steps that change nothing."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.config import PolicyConfig, Reservation
from sim.run import Run
from sim.simulate import simulate
from sim.step_time import LinearStepTime, StepNoise
from tests.checked import CheckedScheduler, request
from workloads.request import Request

STEP_TIME = LinearStepTime.of(
    {
        "constant": 0.010,
        "decode_sequences": 0.001,
        "rows_from_0": 0.0003,
        "rows_from_16": 0.0005,
        "decode_context_tokens": 1e-5,
        "prefill_pairs": 1e-6,
    }
)

MEMORIES: list[tuple[str, Reservation, bool]] = [
    ("contiguous", "max", False),
    ("contiguous", "pow2", False),
    ("contiguous", "exact", False),
    ("paged", "max", False),
    ("paged", "max", True),
]
CONFIGS = [
    PolicyConfig(batching=batching, kv=kv, reservation=reservation, prefix_cache=prefix)
    for batching in ("static", "insertion", "continuous", "prefill-first", "chunked")
    for kv, reservation, prefix in MEMORIES
]
every_policy = pytest.mark.parametrize(
    "config", CONFIGS, ids=[f"{c.name}-{c.reservation}" for c in CONFIGS]
)


@st.composite
def workloads(draw: st.DrawFn) -> list[Request]:
    """Up to 25 requests, some at the same moment, some sharing prefixes of 4-token blocks."""
    requests: list[Request] = []
    now_s = 0.0
    for index in range(draw(st.integers(1, 25))):
        now_s += draw(st.sampled_from([0.0, 0.003, 0.01, 0.0501, 0.3, 2.0]))
        prompt = draw(st.integers(1, 40))
        blocks = -(-prompt // 4)
        family = draw(st.integers(0, 2))
        shared = draw(st.integers(0, blocks)) if family else 0
        own = [1000 * (index + 1) + j for j in range(blocks - shared)]
        ids = (*(100 * family + j for j in range(shared)), *own)
        requests.append(request(str(index), now_s, prompt, draw(st.integers(1, 30)), ids))
    return requests


@st.composite
def limits(draw: st.DrawFn) -> dict[str, int | float | None]:
    """Small memories and budgets, so that every mechanism is reached."""
    return {
        "kv_tokens": draw(st.sampled_from([72, 96, 160, 1000])),
        "block_tokens": draw(st.sampled_from([1, 4, 16])),
        "max_model_len": 70,
        "max_seqs": draw(st.sampled_from([1, 2, 5, 16])),
        "token_budget": draw(st.sampled_from([16, 20, 64])),
        "wait_limit_s": draw(st.sampled_from([0.0, 0.02, 0.5])),
        "queue_limit": draw(st.sampled_from([None, 0, 3])),
    }


def run_checked(config: PolicyConfig, requests: list[Request], macro: bool) -> Run:
    noise = StepNoise(np.array([0.9, 1.0, 1.3]), np.random.default_rng(0))
    scheduler = CheckedScheduler(config)
    run = simulate(requests, scheduler, STEP_TIME, noise=noise, macro=macro)
    assert scheduler.counts() == (0, 0), "something is left over"
    usage = scheduler.memory.usage([])
    assert usage.live_tokens == usage.reserved_tokens == usage.internal_waste_tokens == 0
    return run


@every_policy
@settings(max_examples=25, deadline=None)
@given(requests=workloads(), limit=limits())
def test_macro_steps_equal_single_steps_and_every_law_holds(
    config: PolicyConfig, requests: list[Request], limit: dict[str, int | float | None]
) -> None:
    config = replace(config, **limit)  # type: ignore[arg-type]
    single = run_checked(config, requests, macro=False)
    macro = run_checked(config, requests, macro=True)
    stamps = ["scheduled_s", "first_token_s", "last_token_s", "queue_s"]
    exact = ["request_id", "status", "error", "output_tokens", "cached_tokens", "preemptions"]
    assert single.requests[exact].equals(macro.requests[exact])
    np.testing.assert_allclose(single.requests[stamps], macro.requests[stamps], rtol=1e-9)
    assert single.extra["simulation"]["steps"] == macro.extra["simulation"]["steps"]


@every_policy
@settings(max_examples=20, deadline=None)
@given(requests=workloads(), limit=limits())
def test_every_request_ends_once_and_no_stamp_precedes_its_cause(
    config: PolicyConfig, requests: list[Request], limit: dict[str, int | float | None]
) -> None:
    run = run_checked(replace(config, **limit), requests, macro=True)  # type: ignore[arg-type]
    frame = run.requests
    assert frame["request_id"].tolist() == [r.request_id for r in requests]
    assert set(frame["status"]) <= {"finished", "refused"}
    done = frame[frame["status"] == "finished"]
    asked = {r.request_id: r.output_tokens for r in requests}
    assert [asked[name] for name in done["request_id"]] == done["output_tokens"].tolist()
    assert (done["queue_s"] >= 0).all()
    assert (done["first_token_s"] > done["scheduled_s"] + done["queue_s"]).all()
    assert (done["last_token_s"] >= done["first_token_s"]).all()
    assert (done["cached_tokens"] < done["prompt_tokens"]).all()
    assert not done["error"].any()


@every_policy
def test_the_same_seed_gives_the_same_bytes(config: PolicyConfig) -> None:
    requests = [request(str(i), i * 0.01, 5 + i % 7, 3 + i % 5) for i in range(40)]
    small = replace(config, kv_tokens=96, max_model_len=32)
    first = run_checked(small, requests, macro=True).requests.to_csv()
    assert first == run_checked(small, requests, macro=True).requests.to_csv()


@settings(max_examples=30, deadline=None)
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
