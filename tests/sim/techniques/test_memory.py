"""Techniques of memory: the KV cache, offloading and low-rank keys, against their closed forms."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.policies.batch import BatchShape
from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.acceptance import Chain
from servetwin.sim.step_times.roofline.step_time import roofline_step_time
from servetwin.sim.techniques.memory import KVCache, KVOffload, LowRankKV, WeightOffload
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import Technique
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.trace import Trace
from tests.support.acceptance import distribution, mean_tokens_per_pass
from tests.support.checked import request
from tests.support.formulas.techniques import (
    break_even_bytes_per_s,
    break_even_rank,
    fetch_s_per_token,
    low_rank_elements,
    recompute_s_per_token,
    token_passes,
)
from tests.support.offloading import A100, ideal, opt_13b, phone

LLAMA = find_model("llama-2-7b")


def run(setup: Setup, trace: Trace, macro: bool = True) -> Run:
    return run_once(trace, setup.scenario(), macro=macro)


def alone(prompt: int, output: int) -> Trace:
    return Trace((request("a", 0.0, prompt, output),), "one")


def crowd(count: int = 12, prompt: int = 300, output: int = 20) -> Trace:
    requests = [request(str(n), 0.01 * n, prompt + n, output + n) for n in range(count)]
    return Trace(tuple(requests), "crowd")


def step_s(setup: Setup, decodes: int, context: int) -> float:
    """A step of equal decodes."""
    batch = BatchShape(decodes, decodes * context, decodes)
    return float(roofline_step_time(setup.deployment).seconds(batch)[0])


def passes(ran: Run, cached: bool) -> int:
    """Tokens that went through the model: rows, or with every decode its whole context."""
    steps = ran.steps
    prompts = (steps["rows"] - steps["decode_sequences"]) * steps["steps"]
    decodes = steps["decode_sequences" if cached else "decode_context_tokens"] * steps["steps"]
    return int(prompts.sum() + decodes.sum())


def test_what_the_cache_saves_in_a_simulation() -> None:
    """n = 1000, m = 250: 281,125 token passes against 1,249; the first token comes as soon."""
    cached, bare = KVCache().apply(ideal()), KVCache().off(ideal())
    runs = [run(setup, alone(1000, 250), macro=False) for setup in (cached, bare)]
    assert passes(runs[0], True) == 1249 == token_passes(1000, 250, cached=True)
    assert passes(runs[1], False) == 281_125 == token_passes(1000, 250, cached=False)
    assert passes(runs[1], False) / passes(runs[0], True) == pytest.approx(225.08, abs=5e-3)
    assert runs[0].requests["ttft_s"][0] == runs[1].requests["ttft_s"][0]
    gain = runs[1].requests["tpot_s"][0] / runs[0].requests["tpot_s"][0]
    assert 1 < gain < 281_125 / 1249


def test_without_a_cache_a_token_takes_as_long_as_a_prompt_of_its_context() -> None:
    bare = KVCache().off(ideal())
    frame = run(bare, alone(1000, 3)).requests
    longer = [run(bare, alone(n, 1)).requests["ttft_s"][0] for n in (1000, 1001, 1002)]
    assert frame["e2e_s"][0] == pytest.approx(sum(longer), rel=1e-12)


@pytest.mark.parametrize(
    "technique",
    [KVCache(), WeightOffload(resident_share=0.5), KVOffload(), KVOffload(prefetch=False)],
    ids=str,
)
def test_a_lossless_technique_changes_no_token_count(technique: Technique) -> None:
    assert technique.lossless
    on, off = technique.apply(ideal()), technique.off(ideal())
    counts = [run(s, crowd()).requests[["status", "output_tokens"]] for s in (on, off)]
    pd.testing.assert_frame_equal(counts[0], counts[1])
    assert counts[0]["output_tokens"].tolist() == [20 + n for n in range(12)]


@given(tokens=st.integers(1, 100_000), width=st.integers(2, 8192), rank=st.integers(1, 8192))
def test_a_low_rank_saves_below_its_break_even(tokens: int, width: int, rank: int) -> None:
    saves = low_rank_elements(tokens, width, rank) < tokens * width
    assert saves == (rank < break_even_rank(tokens, width))


@pytest.mark.parametrize(
    ("tokens", "rank", "ratio"),
    [
        (32_768, 256, 14.2),  # 32768 x 4096 / (256 x 36864)
        (4096, 256, 8.0),
        (4096, 2048, 1.0),
        (1000, 1024, 0.785),
    ],
)
def test_low_rank_in_a_model(tokens: int, rank: int, ratio: float) -> None:
    low = LowRankKV(rank=rank).apply(ideal()).deployment.model
    elements = low.resident_kv_elements(tokens)
    assert elements == 32 * 2 * low_rank_elements(tokens, 4096, rank)
    assert LLAMA.resident_kv_elements(tokens) / elements == pytest.approx(ratio, abs=0.03)


def test_a_low_rank_step_reads_thin_factors_and_once_the_wide_ones() -> None:
    plain, low = ideal(), LowRankKV(rank=256).apply(ideal())
    read = [32 * 2 * 2 * elements for elements in (8000 * 4096, low_rank_elements(8000, 4096, 256))]
    written = [32 * 2 * 2 * elements for elements in (4096, 256)]
    saved = read[0] - read[1] + written[0] - written[1]
    assert step_s(plain, 1, 8000) - step_s(low, 1, 8000) == pytest.approx(
        saved / A100.memory_bytes_per_s, rel=1e-6
    )


@pytest.mark.parametrize(
    ("resident_gb", "tokens_per_s"), [(0.0, 0.5195), (3.5, 0.9524), (0.5, 0.5556)]
)
def test_the_speed_limit_of_streamed_weights(resident_gb: float, tokens_per_s: float) -> None:
    """Every pass streams what is not resident: a simulated phone, one request."""
    frame = run(phone(resident_gb), alone(16, 30)).requests
    assert 1 / frame["tpot_s"][0] == pytest.approx(tokens_per_s, abs=5e-5)


def test_all_streamed_takes_its_bytes_over_the_link() -> None:
    assert step_s(phone(0), 1, 100) == pytest.approx(1.925, abs=1e-9)


@pytest.mark.parametrize(
    ("alpha", "drafts", "tokens_per_s"), [(0.6, 4, 1.2809), (0.8, 4, 1.8676), (0.8, 8, 2.4050)]
)
def test_hidden_drafts_multiply_the_passes(alpha: float, drafts: int, tokens_per_s: float) -> None:
    """The draft model takes 3.0 of 3.5 GB, so the target keeps 0.5: fewer, but better passes."""
    per_pass = mean_tokens_per_pass(Chain(alpha, drafts))
    assert per_pass / step_s(phone(0.5), 1, 100) == pytest.approx(tokens_per_s, abs=5e-5)


@pytest.mark.parametrize(("alpha", "drafts"), [(0.6, 4), (0.8, 8)])
def test_hidden_drafts_in_a_simulation(alpha: float, drafts: int) -> None:
    """One request after the other; four standard errors of the mean tokens of a pass."""
    law = Chain(alpha, drafts)
    setup = phone(0.5).with_policies(draft_rows=drafts, max_seqs=1, admission="full")
    requests = tuple(request(str(n), 0.0, 16, 3000) for n in range(6))
    ran = run(replace(setup, acceptance=law), Trace(requests, "row"))
    frame = ran.requests
    decoding_s = (frame["last_token_s"] - frame["first_token_s"]).sum()
    per_pass = 2999 * 6 / decoding_s * step_s(phone(0.5), 1, 100)
    mean, tokens = mean_tokens_per_pass(law), np.arange(1, drafts + 2)
    error = np.sqrt(distribution(law) @ (tokens - mean) ** 2 / ran.extra["simulation"]["steps"])
    assert per_pass == pytest.approx(mean, abs=4 * error)
    assert error < 0.015 * mean


@pytest.mark.parametrize("prefetch", [True, False])
@pytest.mark.parametrize("batch", [1, 500])
def test_a_stream_hides_behind_the_computing_or_the_other_way_round(
    prefetch: bool, batch: int
) -> None:
    whole = ideal()
    streamed = WeightOffload(resident_share=0.99, prefetch=prefetch).apply(whole)
    stream_s = 0.01 * whole.deployment.weight_bytes() / A100.host_link_bytes_per_s
    attention_s = batch * 50 * 524_288 / A100.memory_bytes_per_s
    linear_s = step_s(whole, batch, 50) - attention_s
    together = max(linear_s, stream_s) if prefetch else linear_s + stream_s
    assert step_s(streamed, batch, 50) == pytest.approx(together + attention_s, rel=1e-6)


@given(share=st.floats(0, 1), more=st.floats(0, 1), prefetch=st.booleans())
def test_more_resident_weights_are_never_slower(share: float, more: float, prefetch: bool) -> None:
    less, more = sorted((share, more))
    steps = [
        step_s(WeightOffload(resident_share=s, prefetch=prefetch).apply(ideal()), 4, 100)
        for s in (less, more)
    ]
    assert steps[1] <= steps[0]


def test_offloading_makes_a_model_fit() -> None:
    """70B weights of 138 GB on one device of 80 GB; without it the error says what to do."""
    setup = ideal("llama-2-70b")
    with pytest.raises(PolicyError, match=r"do not fit the 79\.5 GB.*or offloading"):
        setup.scenario()
    frame = run(WeightOffload(resident_gb=60).apply(setup), alone(100, 5)).requests
    streamed = setup.deployment.weight_bytes() - 60e9
    link_s = streamed / A100.host_link_bytes_per_s
    assert frame["tpot_s"][0] == pytest.approx(link_s, rel=1e-3)


@pytest.mark.parametrize("host_share", [0.25, 0.5, 0.9])
def test_keys_on_the_host_make_room_and_cost_their_way(host_share: float) -> None:
    plain, off = ideal(), KVOffload(host_share=host_share).apply(ideal())
    tokens = [setup.scenario().policies.kv_tokens for setup in (plain, off)]
    assert tokens[1] / tokens[0] == pytest.approx(1 / (1 - host_share), rel=1e-4)
    context_s = step_s(off, 1, 9000) - step_s(off, 1, 8000)
    assert context_s == pytest.approx(
        1000 * host_share * 524_288 / A100.host_link_bytes_per_s, rel=1e-6
    )


def test_fetching_a_token_beats_computing_it_anew() -> None:
    deployment = opt_13b()
    assert fetch_s_per_token(deployment) * 1e6 == pytest.approx(32.8, abs=0.05)
    assert recompute_s_per_token(deployment) * 1e6 == pytest.approx(134.4, abs=0.05)
    assert break_even_bytes_per_s(deployment) == pytest.approx(25e9 * 32.768 / 134.433, rel=1e-4)


@pytest.mark.parametrize("link", [0.7, 1.6])
def test_the_break_even_is_that_of_whole_steps(link: float) -> None:
    """A prompt of 1024 + 512: the first part fetched from the host, or computed with the rest."""
    deployment = opt_13b()
    offload = replace(
        deployment.offload, resident_kv=1.0, bytes_per_s=link * break_even_bytes_per_s(deployment)
    )
    model = roofline_step_time(replace(deployment, offload=offload))
    fetched = BatchShape(0, 0, 0, ((1024, 512),), swapped_tokens=1024)
    anew = BatchShape(0, 0, 0, ((0, 1536),))
    assert (model.seconds(fetched)[0] < model.seconds(anew)[0]) == (link > 1)
