"""One max() over a whole step: published ideals, and how it lies to the sum over operators."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.policies.batch import BatchShape
from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.step_times.roofline.decode_latency import RooflineEstimate, ideal_deployment
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.efficiency import Efficiency
from servetwin.sim.step_times.roofline.formats import find_format
from servetwin.sim.step_times.roofline.operators import Operator
from servetwin.sim.step_times.roofline.step_time import roofline_step_time
from servetwin.sim.step_times.step_time import UNIT_S

LLAMA, A100 = find_model("llama-2-7b"), find_hardware("a100-80gb")
IDEAL_LLAMA = ideal_deployment(LLAMA, A100)
MODELS = ("llama-2-7b", "llama-3-8b", "mistral-7b", "mixtral-8x7b", "deepseek-v2", "mamba-2.8b")
CHUNKS = st.tuples(st.integers(0, 8192), st.integers(2, 2048))


def decoding(contexts: list[int]) -> BatchShape:
    return BatchShape(len(contexts), sum(contexts), len(contexts), decode_contexts=tuple(contexts))


def prefill(tokens: int, cached: int = 0) -> BatchShape:
    return BatchShape(0, 0, 0, ((cached, tokens),))


def published_ms(step: RooflineEstimate, traffic: set[str]) -> float:
    """The step in ms, where only some of its operators count as traffic."""
    moved = sum(o.moved_bytes for o in step.operators if o.name in traffic)
    return 1e3 * max(step.compute_s, moved / A100.memory_bytes_per_s)


@pytest.mark.parametrize(
    ("batch", "context", "expected_ms"),
    [(1, 128, 6.5136), (32, 1024, 14.9063), (128, 1024, 40.1832)],
)
def test_ideal_decode_steps(batch: int, context: int, expected_ms: float) -> None:
    """Published without the KV that is written, which adds one position in ``context``."""
    step = RooflineEstimate.of(IDEAL_LLAMA, decoding([context] * batch))
    traffic = {"projections", "FFN", "head", "decode attention"}
    assert round(published_ms(step, traffic), 4) == expected_ms
    written_ms = 1e3 * batch * 524_288 / A100.memory_bytes_per_s
    assert 1e3 * step.seconds == pytest.approx(expected_ms + written_ms, abs=5e-5)


@pytest.mark.parametrize(
    ("tokens", "expected_ms", "bound"),
    [(128, 6.3521, "memory"), (512, 21.4761, "compute"), (2048, 88.5450, "compute")],
)
def test_ideal_prompts(tokens: int, expected_ms: float, bound: str) -> None:
    """Published with the layers as the only traffic: no head, no KV."""
    step = RooflineEstimate.of(IDEAL_LLAMA, prefill(tokens))
    assert (step.compute_s > step.memory_s) == (bound == "compute")
    assert round(published_ms(step, {"projections", "FFN"}), 4) == expected_ms
    if bound == "compute":
        assert round(1e3 * step.seconds, 4) == expected_ms


def test_work_of_a_step_is_the_formula_of_the_page() -> None:
    """2 P T + 2 V d logits + 4 L h e pairs; w (P + V d) + c KV (read + written)."""
    layers, head = LLAMA.linear_params(), LLAMA.head_params()
    shape = BatchShape(2, 300, 2, ((100, 50),), decode_contexts=(100, 200))
    step = RooflineEstimate.of(IDEAL_LLAMA, shape)
    pairs = 300 + 50 * 100 + 50 * 51 / 2
    flops = sum(operator.flops for operator in step.operators)
    assert flops == 2 * layers * 52 + 2 * head * 3 + 4 * 32 * 4096 * pairs
    kept = 300 + 150 + 52
    assert step.moved_bytes == 2 * (layers + head) + 524_288 * kept


@pytest.mark.parametrize("drafts", [0, 1, 4, 8])
def test_verifying_drafts_is_a_chunk_that_reads_what_one_token_reads(drafts: int) -> None:
    """n tokens in, n distributions out: compute grows, weights are read once all the same."""
    chunk, shape = ((1000, drafts + 1),), BatchShape(0, 0, 0, ((1000, drafts + 1),), 0, 1)
    verified = by_name(RooflineEstimate.of(IDEAL_LLAMA, shape))
    one = by_name(RooflineEstimate.of(IDEAL_LLAMA, BatchShape(0, 0, 0, ((1000, 1),), 0, 1)))
    for name in ("projections", "FFN", "head"):
        assert verified[name].moved_bytes == one[name].moved_bytes
        assert verified[name].flops == (drafts + 1) * one[name].flops
    prompt = by_name(RooflineEstimate.of(IDEAL_LLAMA, BatchShape(0, 0, 0, chunk)))
    assert {n: o for n, o in prompt.items() if n != "head"} == {
        n: o for n, o in verified.items() if n != "head"
    }
    model = roofline_step_time(IDEAL_LLAMA)
    assert model.seconds(shape)[0] == model.seconds(BatchShape(0, 0, 0, chunk))[0]


def test_verification_is_for_free_far_below_the_ridge() -> None:
    def seconds(tokens: int) -> float:
        shape = BatchShape(0, 0, 0, ((1000, tokens),), 0, 1)
        return RooflineEstimate.of(IDEAL_LLAMA, shape).seconds

    assert seconds(9) == pytest.approx(seconds(1), rel=1e-3)
    assert seconds(400) > 2 * seconds(1)


def by_name(step: RooflineEstimate) -> dict[str, Operator]:
    return {operator.name: operator for operator in step.operators}


@given(
    st.sampled_from(MODELS),
    st.lists(st.integers(1, 32_768), max_size=64),
    st.lists(CHUNKS, max_size=3),
)
def test_it_is_never_longer_than_the_sum_over_operators(
    name: str, contexts: list[int], chunks: list[tuple[int, int]]
) -> None:
    if not contexts and not chunks:
        return
    deployment = ideal_deployment(find_model(name), A100)
    shape = decoding(contexts)._replace(prefill_chunks=tuple(chunks))
    exact = float(roofline_step_time(deployment).seconds(shape)[0])
    rounding_s = UNIT_S * (sum(contexts) + 2 + len(chunks))  # of each coefficient to a unit
    assert RooflineEstimate.of(deployment, shape).seconds <= exact * (1 + 1e-12) + rounding_s


def test_in_a_mixed_batch_it_hides_one_operator_s_compute_behind_another_s_traffic() -> None:
    shape = BatchShape(64, 64 * 2048, 64, ((0, 512),))
    exact = float(roofline_step_time(IDEAL_LLAMA).seconds(shape)[0])
    assert RooflineEstimate.of(IDEAL_LLAMA, shape).seconds < 0.75 * exact


def test_near_the_ridge_a_smooth_knee_is_longer_than_a_sharp_one() -> None:
    """At the ridge by a factor of sqrt(2) for p = 2, and hardly away from it."""
    step = RooflineEstimate.of(smooth(2.0), prefill(512))
    sharp = max(step.compute_s, step.memory_s)
    assert step.seconds == pytest.approx(np.hypot(step.compute_s, step.memory_s))
    assert sharp < step.seconds < np.sqrt(2) * sharp
    far = RooflineEstimate.of(smooth(2.0), decoding([128]))
    assert far.seconds == pytest.approx(far.memory_s, rel=1e-3)


def smooth(knee: float) -> Deployment:
    return replace(IDEAL_LLAMA, efficiency=Efficiency(1, 1, 0, knee))


def test_efficiency_and_overhead_are_those_of_the_deployment() -> None:
    deployment = replace(IDEAL_LLAMA, efficiency=Efficiency(0.5, 0.8, 1e-3, np.inf))
    step = RooflineEstimate.of(deployment, prefill(4096))
    assert step.seconds == pytest.approx(1e-3 + step.compute_s / 0.5)
    step = RooflineEstimate.of(deployment, decoding([128]))
    assert step.seconds == pytest.approx(1e-3 + step.memory_s / 0.8)


def test_products_run_in_their_format_and_attention_in_bf16() -> None:
    h100, shape = find_hardware("h100"), prefill(8192)
    plain = RooflineEstimate.of(ideal_deployment(LLAMA, h100), shape)
    quick = RooflineEstimate.of(ideal_deployment(LLAMA, h100, find_format("fp8")), shape)
    attention_s = sum(o.flops for o in plain.attention) / h100.peak("bf16")
    ratio = h100.peak("fp8") / h100.peak("bf16")
    assert quick.compute_s == pytest.approx((plain.compute_s - attention_s) / ratio + attention_s)
