"""Memory of techniques that change attention, and runs that lack it."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.sim.experiments.predict import run_once
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.roofline.memory import largest_step
from servetwin.sim.step_times.roofline.server import memory_settings
from servetwin.sim.step_times.roofline.step_memory import RUNTIME_BYTES, ServerMemory
from servetwin.sim.techniques.attention import (
    CrossLayer,
    Dilated,
    GroupedQuery,
    KVBudget,
    LinearAttention,
    MultiQuery,
    SlidingWindow,
    StateSpace,
    Streaming,
)
from servetwin.sim.techniques.memory import LowRankKV
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import Technique
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.attention_techniques import A100, LLAMA, MLA, ideal
from tests.support.checked import request
from tests.support.effort import examples


@pytest.mark.parametrize(
    ("technique", "groups"),
    [
        (SlidingWindow(window_tokens=512), "window:512"),
        (SlidingWindow(window_tokens=512, global_every=4), "3xwindow:512,full"),
        (Streaming(window_tokens=512), "kept:516"),
        (KVBudget(recent_tokens=9, heavy_tokens=7), "kept:16"),
        (StateSpace(), "state"),
        (StateSpace(attention_every=4, expand=2, ffn="kept"), "3xstate,full"),
        (StateSpace(attention_every=4), "6xstate,full"),
        (LowRankKV(rank=64), "full,state:4096"),
    ],
)
def test_the_memory_grows_as_the_technique_says(technique: Technique, groups: str) -> None:
    policies = technique.apply(ideal(LLAMA)).scenario().policies
    assert (policies.kv, policies.kv_groups) == ("grouped", groups)


@pytest.mark.parametrize("technique", [GroupedQuery(), MLA, CrossLayer(), Dilated()])
def test_techniques_that_keep_every_token_keep_the_memory_paged(technique: Technique) -> None:
    plain = ideal(LLAMA)
    policies = technique.apply(plain).scenario().policies
    assert policies.kv == "paged"
    assert policies.kv_tokens >= plain.scenario().policies.kv_tokens


def test_a_window_that_is_taken_back_leaves_nothing_behind() -> None:
    windowed = memory_settings(
        SlidingWindow().apply(ideal(LLAMA)).deployment, ideal(LLAMA).policies
    )
    back = memory_settings(ideal(LLAMA).deployment, windowed)
    assert back.kv_groups == "full"


def test_states_that_do_not_fit_are_refused() -> None:
    linear = LinearAttention().apply(ideal(LLAMA)).deployment
    tight = short_of_memory(ideal(LLAMA).with_deployment(model=linear.model), 1e6).deployment
    with pytest.raises(PolicyError, match="not even one block of 16 tokens of 2097152 bytes"):
        memory_settings(tight, ideal(LLAMA).policies)


def crowd(count: int = 60, prompt: int = 600, output: int = 40) -> Trace:
    """Equal requests, all at once."""
    requests: list[Request] = [request(str(n), 0.0, prompt, output) for n in range(count)]
    return Trace(tuple(requests), "crowd")


def short_of_memory(setup: Setup, room: float = 8000 * 524_288) -> Setup:
    """Room for the bytes of 8000 tokens of the plain model, beside weights, runtime and step."""
    deployment = setup.deployment
    step = deployment.step_bytes(largest_step(setup.policies))
    taken = deployment.weight_bytes() + RUNTIME_BYTES + step
    return setup.with_deployment(memory=ServerMemory((taken + room) / A100.memory_bytes))


def run(setup: Setup, trace: Trace) -> Run:
    return run_once(trace, setup.scenario(), keep_usage=True)


@pytest.mark.parametrize(
    "technique",
    [
        Streaming(sink_tokens=4, window_tokens=196),
        KVBudget(recent_tokens=150, heavy_tokens=50),
    ],
)
def test_what_is_resident_never_exceeds_the_window(technique: Technique) -> None:
    """Prompts of 600 tokens, 200 of which stay: in a simulation, at every step."""
    ran = run(short_of_memory(technique.apply(ideal(LLAMA))), crowd())
    steps = ran.steps
    assert (steps["live_tokens"] <= 200 * steps["running"]).all()
    assert steps["live_tokens"].max() > 199 * steps["running"].max()
    assert set(ran.requests["status"]) == {"finished"}


@pytest.mark.parametrize(
    "technique",
    [
        GroupedQuery(kv_heads=8),
        MultiQuery(),
        MLA,
        CrossLayer(),
        SlidingWindow(window_tokens=200),
        KVBudget(recent_tokens=100, heavy_tokens=100),
        Streaming(window_tokens=200),
        StateSpace(attention_every=4),
        LinearAttention(),
    ],
    ids=lambda technique: technique.name,
)
def test_less_memory_per_sequence_serves_a_crowd_sooner(technique: Technique) -> None:
    """More run at once where memory is short, and every request still gets its tokens."""
    off = ideal(LLAMA)
    runs = [run(short_of_memory(setup), crowd()) for setup in (off, technique.apply(off))]
    peaks = [r.steps["running"].max() for r in runs]
    ends = [r.requests["last_token_s"].max() for r in runs]
    assert peaks[1] > peaks[0]
    assert ends[1] < ends[0]
    assert set(runs[1].requests["output_tokens"]) == {40}


@settings(max_examples=examples(10))
@given(windows=st.lists(st.integers(16, 800), min_size=2, max_size=3, unique=True))
def test_a_longer_window_never_serves_an_unhurried_client_sooner(windows: list[int]) -> None:
    """One request at a time: no memory is short, and a longer window is more to read."""
    trace = Trace((request("a", 0.0, 700, 20),), "one")
    ends = [
        run(SlidingWindow(window_tokens=w).apply(ideal(LLAMA)), trace).requests["last_token_s"][0]
        for w in sorted(windows)
    ]
    assert all(shorter <= longer for shorter, longer in pairwise(ends))


def test_time_per_token_of_a_recurrence_does_not_depend_on_the_prompt() -> None:
    setup = StateSpace().apply(ideal(LLAMA))
    requests = [request(str(n), 1000.0 * n, prompt, 50) for n, prompt in enumerate((1, 500, 3900))]
    frame = run(setup, Trace(tuple(requests), "apart")).requests
    assert frame["tpot_s"].tolist() == pytest.approx([frame["tpot_s"][0]] * 3, rel=1e-9)
    assert frame["ttft_s"].is_monotonic_increasing
