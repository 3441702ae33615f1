"""Decoding: drafts, trees, blocks, diffusion, exits, cascades; closed forms and simulations."""

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from policies.batch import BatchShape
from sim.core.simulate import simulate
from sim.experiments.predict import run_once
from sim.records.run import Run
from sim.shapes.catalogue import find_hardware, find_model
from sim.shapes.hardware import Hardware
from sim.shapes.model import ModelShape
from sim.step_times.acceptance import Acceptance, Blockwise, Chain, Diffusion, Tree, Verifier
from sim.step_times.roofline.deployment import (
    IDEAL_KERNELS,
    Deployment,
    Drafting,
    EarlyExit,
    Offload,
    Parallel,
)
from sim.step_times.roofline.efficiency import IDEAL
from sim.step_times.roofline.formats import BF16
from sim.step_times.roofline.operators import head_operator, linear_operators
from sim.step_times.roofline.step_time import roofline_step_time
from sim.techniques.attention import SlidingWindow
from sim.techniques.decoding import (
    BlockwiseDecoding,
    DiffusionDecoding,
    DraftedDecoding,
    EarlyExitDecoding,
    ModelCascade,
    SelfSpeculation,
    SpeculativeDecoding,
    TreeSpeculation,
)
from sim.techniques.memory import KVCache, WeightOffload
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique
from tests.support.checked import CheckedScheduler, request
from tests.support.paths import ROOT
from tests.support.speculation_formulas import (
    best_drafts,
    drafted_pass_s,
    needed_alpha,
    period,
    plain_step_s,
    roofline_speed_up,
    speed_up,
    streamed_pass_s,
)
from tests.support.technique_formulas import early_exit_gain_limit, routed_cost, small_first_cost
from workloads.errors import PolicyError
from workloads.trace import Trace

A100: Hardware = find_hardware("a100-80gb")
H100: Hardware = find_hardware("h100")
TARGET: ModelShape = find_model("llama-2-7b")
DRAFT: ModelShape = find_model("llama-68m")
BYTES_PER_S = 2.039e12
FAR_APART_S = 1000.0

DRAFTED: list[DraftedDecoding] = [
    SpeculativeDecoding(),
    TreeSpeculation(),
    SelfSpeculation(),
    BlockwiseDecoding(),
    DiffusionDecoding(),
]
TECHNIQUES: list[Technique] = [*DRAFTED, EarlyExitDecoding(), ModelCascade()]
PAGE = (ROOT / "docs/techniques/decoding.md").read_text()


def ideal(model: ModelShape = TARGET, hardware: Hardware = A100, **kernels: Any) -> Deployment:
    """On one device, as its data sheet says."""
    return Deployment(model, hardware, IDEAL, kernels=replace(IDEAL_KERNELS, **kernels))


def base(**changes: Any) -> Setup:
    """Llama-2-7B on an ideal A100."""
    return Setup.of(ideal(**changes))


def law_of(setup: Setup) -> Acceptance:
    assert setup.acceptance is not None
    return setup.acceptance


def gain(technique: DraftedDecoding, setup: Setup, sequences: int, context_tokens: int) -> float:
    """Tokens per second of decodes with it over those without, truncation apart."""
    with_it = technique.apply(setup)
    return roofline_speed_up(
        setup.deployment, with_it.deployment, law_of(with_it), sequences, context_tokens
    )


def apart(count: int, prompt: int = 500, output: int = 65) -> Trace:
    """Requests so far apart that none meets another."""
    requests = (request(str(i), FAR_APART_S * i, prompt, output) for i in range(count))
    return Trace(tuple(requests), "apart")


def together(count: int, prompt: int, output: int) -> Trace:
    """Requests all at once."""
    return Trace(tuple(request(str(i), 0.0, prompt, output) for i in range(count)), "together")


def decode_s(run: Run) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """From the first token of each request to its last."""
    stamps = run.requests
    return (stamps["last_token_s"] - stamps["first_token_s"]).to_numpy(np.float64)


# Closed forms


@pytest.mark.parametrize("wanted", [1.0, 1.5, 2.0, 2.4])
def test_the_needed_acceptance_makes_the_wanted_speed_up(wanted: float) -> None:
    alpha = needed_alpha(wanted, 4, 0.05)
    tokens = sum(alpha**accepted for accepted in range(5))
    assert tokens / (4 * 0.05 + 1) == pytest.approx(wanted)


def test_twice_as_fast_takes_the_printed_acceptance() -> None:
    assert round(needed_alpha(2.0, 4, 0.05), 4) == 0.6222
    assert needed_alpha(0.5, 4, 0.05) == 0.0


def test_a_speed_up_beyond_accepting_everything_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"4.5 is not possible with 4 drafts.*makes 4.16667"):
        needed_alpha(4.5, 4, 0.05)


@pytest.mark.parametrize(("draft", "verify"), [(1.0, 3.0), (3.0, 1.0), (2.0, 2.0)])
def test_a_pipelined_pass_takes_the_longer_part(draft: float, verify: float) -> None:
    assert period(draft, verify, pipelined=True) == max(draft, verify)
    assert period(draft, verify, pipelined=False) == draft + verify
    gains = [speed_up(3.0, 4, draft / 4, verify, pipelined) for pipelined in (True, False)]
    assert gains == [3.0 / max(draft, verify), 3.0 / (draft + verify)]


@pytest.mark.parametrize(("alpha", "draft_share"), [(0.8, 0.05), (0.6, 0.02), (0.9, 0.2)])
def test_more_drafts_gain_up_to_an_optimum_within(alpha: float, draft_share: float) -> None:
    gains = [speed_up((1 - alpha ** (g + 1)) / (1 - alpha), g, draft_share) for g in range(1, 33)]
    best = best_drafts(alpha, draft_share, most=32)
    assert 1 < best < 32
    assert all(a < b for a, b in pairwise(gains[:best]))
    assert all(a > b for a, b in pairwise(gains[best - 1 :]))


def test_the_roofline_has_an_optimum_within_too() -> None:
    gains = [
        gain(SpeculativeDecoding(alpha=0.8, drafts=g, draft="tinyllama-1.1b"), base(), 4, 500)
        for g in range(1, 13)
    ]
    best = int(np.argmax(gains))
    assert 0 < best < 11
    assert gains[best] > 1


@pytest.mark.parametrize(
    ("streamed_gb", "law", "tokens_per_s"),
    [
        (7.7, None, "0.5195"),
        (7.7 - 3.5, None, "0.9524"),
        (7.7 - 0.5, None, "0.5556"),
        (7.7 - 0.5, Chain(0.6, 4), "1.2809"),
        (7.7 - 0.5, Chain(0.8, 4), "1.8676"),
        (7.7 - 0.5, Chain(0.8, 8), "2.4050"),
    ],
)
def test_passes_that_stream_their_weights_have_a_speed_limit(
    streamed_gb: float, law: Chain | None, tokens_per_s: str
) -> None:
    """Llama-2-13B in 7.7 GB, storage of 4 GB/s; the draft is resident and hidden.

    Attention is not hidden by the roofline: microseconds of a pass of seconds.
    """
    pass_s = streamed_pass_s(7.7e9, 7.7e9 - streamed_gb * 1e9, 4e9)
    tokens = law.mean_tokens_per_pass() if law else 1.0
    assert f"{tokens / pass_s:.4f}" == tokens_per_s

    model = find_model("llama-2-13b")
    stored = replace(BF16, weight_bytes=7.7e9 / model.params(), stored_as="small")
    phone = Setup.of(replace(ideal(model), prefill=stored, decode=stored))
    streaming = WeightOffload(resident_gb=7.7 - streamed_gb, gb_per_s=4).apply(phone)
    if law is None:
        assert plain_step_s(streaming.deployment, 1, 0) == pytest.approx(pass_s, rel=1e-5)
        return
    technique = SpeculativeDecoding(
        alpha=law.alpha, drafts=law.drafts, draft="tinyllama-1.1b", placement="overlapped"
    )
    drafting = technique.apply(streaming).deployment
    assert drafted_pass_s(drafting, law.rows, 1, 0) == pytest.approx(pass_s, rel=1e-5)


def test_all_weights_streamed_take_the_printed_time() -> None:
    assert streamed_pass_s(7.7e9, 0, 4e9) == 1.925
    assert streamed_pass_s(7.7e9, 8e9, 4e9) == 0


def test_costs_of_cascades() -> None:
    """A router of 1 %, a small model of 10 %, six requests in ten are easy."""
    assert routed_cost(small=0.1, small_share=0.6, router=0.01) == pytest.approx(0.47)
    assert small_first_cost(small=0.1, kept_share=0.6) == pytest.approx(0.50)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.2))
def test_routing_costs_less_than_trying_where_the_router_is_cheaper_than_failures(
    small: float, share: float, router: float
) -> None:
    routed, tried = routed_cost(small, share, router), small_first_cost(small, share)
    assert tried - routed == pytest.approx(small * (1 - share) - router)


def test_leaving_half_way_three_times_in_four_gains_1_6() -> None:
    law = EarlyExitDecoding(depths=(0.5, 1.0), shares=(0.75, 0.25)).exits
    assert law.mean_depth() == 0.625
    assert early_exit_gain_limit(law) == 1.6


def test_a_hundred_tokens_in_blocks_of_four_are_26_passes() -> None:
    """The prompt's pass predicts the first block and yields a token of its own."""
    setup = BlockwiseDecoding(alpha=1.0, block=4).apply(base())
    run = run_once(apart(1, output=101), setup.scenario())
    assert int(run.steps["steps"].sum()) == 26
    assert Blockwise(1.0, 4).invocations(100) == 26


# Step times


def test_verifying_costs_a_chunk_and_its_bytes_are_free() -> None:
    """All rows need logits, a chunk's last one only: more FLOPs below the ridge, no more time."""
    deployment, start, rows = ideal(), 700, 5
    step_time = roofline_step_time(deployment)
    chunk_s = float(step_time.seconds(BatchShape(0, 0, 0, ((start, rows),)))[0])
    assert drafted_pass_s(deployment, rows, 1, start) == pytest.approx(chunk_s, rel=1e-9)
    assert (
        head_operator(deployment, 5, False).flops == 5 * head_operator(deployment, 1, False).flops
    )
    head_bytes = [head_operator(deployment, n, False).moved_bytes for n in (1, 5)]
    assert head_bytes == [2 * 32000 * 4096] * 2, "n rows in, n laws over the vocabulary out"
    once, more = (linear_operators(deployment, n, False)[0] for n in (1, 5))
    assert (more.flops, more.moved_bytes) == (5 * once.flops, once.moved_bytes)


def test_a_pass_is_its_bytes_over_the_bandwidth() -> None:
    """Below the ridge: the target's weights once, the draft's four times, and the keys of both."""
    with_it = SpeculativeDecoding(drafts=4).apply(base())
    start, kv, draft_kv = 800, 2 * 32 * 4096 * 2, 2 * 2 * 768 * 2
    target = 2 * (TARGET.linear_params() + 32000 * 4096) + kv * (start + 5 + 5)
    drafting = 4 * 2 * (DRAFT.linear_params() + 32000 * 768)
    drafting += draft_kv * sum(start + 1 + step + 1 for step in range(4))
    expected_s = (target + drafting) / BYTES_PER_S
    assert drafted_pass_s(with_it.deployment, 5, 1, start) == pytest.approx(expected_s, rel=1e-9)


@pytest.mark.parametrize(
    ("placement", "pipelined"), [("device", False), ("other", False), ("overlapped", True)]
)
@pytest.mark.parametrize("draft", ["llama-68m", "llama-2-7b"])
def test_drafting_on_a_cpu_takes_its_time_before_or_beside(
    placement: Any, pipelined: bool, draft: str
) -> None:
    """The larger draft on a processor outlasts the verification."""
    device = None if placement == "device" else "epyc-cpu"
    technique = SpeculativeDecoding(draft=draft, placement=placement, draft_hardware=device)
    deployment = technique.apply(base()).deployment
    alone = replace(ideal(find_model(draft)), hardware=find_hardware(device) if device else A100)
    draft_s = sum(plain_step_s(alone, 3, 300 + step) for step in range(4))
    verify_s = drafted_pass_s(ideal(), 5, 3, 300)
    assert (draft_s > verify_s) == (draft == "llama-2-7b")
    assert drafted_pass_s(deployment, 5, 3, 300) == pytest.approx(
        period(draft_s, verify_s, pipelined), rel=1e-9
    )


def test_a_tree_is_drafted_level_by_level() -> None:
    technique = TreeSpeculation(widths=(3, 2, 1, 1), draft="tinyllama-1.1b")
    deployment = technique.apply(base()).deployment
    assert deployment.drafting is not None
    assert deployment.drafting.step_rows == (1, 3, 6, 6)
    chain = TreeSpeculation(widths=(1, 1, 1)).apply(base())
    assert chain.deployment == SpeculativeDecoding(drafts=3).apply(base()).deployment
    assert law_of(chain).mean_tokens_per_pass() == pytest.approx(
        Chain(0.6, 3).mean_tokens_per_pass()
    )


@pytest.mark.parametrize("window", [256, 100_000])
def test_a_short_context_bounds_what_a_draft_reads_and_not_what_verifying_does(window: int) -> None:
    technique = SelfSpeculation(layer_share=1, context_tokens=window, drafts=3)
    deployment, start, sequences = technique.apply(base()).deployment, 3000, 4
    drafting_s = drafted_pass_s(deployment, 4, sequences, start) - drafted_pass_s(
        ideal(), 4, sequences, start
    )
    weights = 2 * (TARGET.linear_params() + 32000 * 4096)
    seen = sum(min(start + 1 + step, window) + 1 for step in range(3))
    expected = 3 * weights + sequences * seen * 524_288
    assert drafting_s == pytest.approx(expected / BYTES_PER_S, rel=1e-9)


def test_a_short_context_pays_where_keys_outweigh_weights() -> None:
    technique = SelfSpeculation(layer_share=1, context_tokens=512, alpha=0.9)
    few, many = (gain(technique, base(), sequences, 4000) for sequences in (1, 64))
    assert few < 1 < many


def test_a_part_of_the_layers_drafts_in_its_share_of_their_time() -> None:
    deployment = SelfSpeculation(layer_share=0.25, drafts=1).apply(base()).deployment
    drafting_s = drafted_pass_s(deployment, 2, 1, 400) - drafted_pass_s(ideal(), 2, 1, 400)
    layers = 0.25 * (2 * TARGET.linear_params() + 524_288 * (401 + 1))
    assert drafting_s == pytest.approx((layers + 2 * 32000 * 4096) / BYTES_PER_S, rel=1e-9)


def test_a_draft_model_takes_memory_and_a_part_of_the_target_none() -> None:
    plain = base().deployment
    own, far, part = (
        technique.apply(base()).deployment
        for technique in (
            SpeculativeDecoding(),
            SpeculativeDecoding(placement="other"),
            SelfSpeculation(),
        )
    )
    assert own.weight_bytes() - plain.weight_bytes() == 2 * DRAFT.params()
    assert own.kv_bytes_per_token() - plain.kv_bytes_per_token() == 2 * 2 * 768 * 2
    for other in (far, part):
        assert other.weight_bytes() == plain.weight_bytes()
        assert other.kv_bytes_per_token() == plain.kv_bytes_per_token()


def test_the_draft_model_computes_the_prompt_too() -> None:
    plain_s, own_s, far_s, part_s = (
        float(roofline_step_time(deployment).seconds(BatchShape(0, 0, 0, ((0, 1000),)))[0])
        for deployment in (
            ideal(),
            SpeculativeDecoding().apply(base()).deployment,
            SpeculativeDecoding(placement="other").apply(base()).deployment,
            SelfSpeculation().apply(base()).deployment,
        )
    )
    alone_s = float(roofline_step_time(ideal(DRAFT)).seconds(BatchShape(0, 0, 0, ((0, 1000),)))[0])
    assert own_s == pytest.approx(plain_s + alone_s)
    assert far_s == part_s == plain_s


@pytest.mark.parametrize(
    ("hardware", "least", "most"), [(H100, 0.98, 1.0), (A100, 0.0, 153.02 / 256)]
)
def test_a_diffusion_block_gains_eight_below_the_ridge_and_less_past_it(
    hardware: Hardware, least: float, most: float
) -> None:
    """256 tokens in 32 passes; what is missing on an H100 is writing 256 keys instead of one."""
    technique = DiffusionDecoding(block_tokens=256, passes=32)
    measured = gain(technique, base(hardware=hardware), 1, 500)
    assert 8 * least < measured <= 8 * most
    step_s = plain_step_s(ideal(hardware=hardware), 1, 500)
    forward_s = drafted_pass_s(ideal(hardware=hardware), 256, 1, 500)
    assert measured == pytest.approx(256 * step_s / (32 * forward_s))


def test_early_exit_gains_its_mean_depth_of_the_layers_and_not_the_head() -> None:
    setup = EarlyExitDecoding().apply(base())
    layers, head, kv = 2 * TARGET.linear_params(), 2 * 32000 * 4096, 524_288
    expected_s = (0.625 * (layers + kv * 501) + head + kv) / BYTES_PER_S
    assert plain_step_s(setup.deployment, 1, 500) == pytest.approx(expected_s, rel=1e-9)


def test_early_exit_gains_nothing_of_the_weights_in_a_large_batch_that_is_memory_bound() -> None:
    without, with_it = base().deployment, EarlyExitDecoding().apply(base()).deployment
    gains = [plain_step_s(without, n, 0) / plain_step_s(with_it, n, 0) for n in (1, 2, 4, 16, 128)]
    assert all(a > b for a, b in pairwise(gains))
    assert 1 <= gains[-1] < 1.01
    past_ridge = plain_step_s(without, 4096, 0) / plain_step_s(with_it, 4096, 0)
    assert 1.5 < past_ridge < 1.6


@given(
    st.lists(st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)), min_size=1, max_size=4),
    st.integers(1, 64),
)
def test_what_is_read_is_between_the_mean_depth_and_the_deepest(
    parts: list[tuple[float, float]], rows: int
) -> None:
    total = sum(share for _, share in parts)
    law = EarlyExit(tuple((depth, share / total) for depth, share in parts))
    assert law.read_depth(1) == pytest.approx(law.mean_depth())
    assert law.mean_depth() - 1e-9 <= law.read_depth(rows) <= max(d for d, _ in parts) + 1e-9


@pytest.mark.parametrize("share", [0.0, 0.6, 1.0])
def test_a_cascade_alone_takes_the_mean_of_its_models(share: float) -> None:
    setup = ModelCascade(small_share=share).apply(base())
    small, large = (plain_step_s(ideal(m), 1, 300) for m in (find_model("tinyllama-1.1b"), TARGET))
    expected_s = routed_cost(small, share, 0.0, large)
    assert plain_step_s(setup.deployment, 1, 300) == pytest.approx(expected_s, rel=1e-9)


def test_latency_and_throughput_both_rise_with_the_batch() -> None:
    batches = [1, 2, 4, 8, 16, 32, 64, 128, 256]
    latencies = [plain_step_s(ideal(), sequences, 500) for sequences in batches]
    rates = [sequences / s for sequences, s in zip(batches, latencies, strict=True)]
    assert all(a < b for a, b in pairwise(latencies))
    assert all(a < b for a, b in pairwise(rates))


# Laws


WINDOWED = SlidingWindow(window_tokens=256).apply(base()).deployment.model


@pytest.mark.parametrize(
    "model",
    [TARGET, WINDOWED, *map(find_model, ("llama-3-8b", "mixtral-8x7b", "deepseek-v2"))],
    ids=["mha", "windowed", "gqa", "experts", "latent"],
)
@given(
    technique=st.sampled_from(
        [
            SpeculativeDecoding(alpha=0, any_vocabulary=True),
            SpeculativeDecoding(alpha=0, drafts=1, placement="overlapped", any_vocabulary=True),
            TreeSpeculation(alpha=0, any_vocabulary=True),
            SelfSpeculation(alpha=0),
            BlockwiseDecoding(alpha=0, block=3),
        ]
    ),
    sequences=st.integers(1, 300),
    context_tokens=st.integers(0, 4000),
    kernels=st.sampled_from(
        [{}, {"occupancy": "heads"}, {"occupancy": "split"}, {"attention_slowdown": 1.3}]
    ),
)
@example(BlockwiseDecoding(alpha=0, block=3), 1, 510, {"occupancy": "split"})
def test_drafts_that_are_never_accepted_are_never_faster(
    model: ModelShape,
    technique: DraftedDecoding,
    sequences: int,
    context_tokens: int,
    kernels: dict[str, Any],
) -> None:
    setup = base(model=model, **kernels)
    assert gain(technique, setup, sequences, context_tokens) <= 1 + 1e-9


@pytest.mark.parametrize(
    "split",
    [
        {"parallel": Parallel(tensor=8)},
        {"parallel": Parallel(pipeline=4)},
        {"parallel": Parallel(sequence=2)},
        {"offload": Offload(resident_weights=0.5, prefetch=False)},
        {"offload": Offload(resident_kv=0.3)},
    ],
)
@pytest.mark.parametrize("technique", [SpeculativeDecoding(alpha=0), SelfSpeculation(alpha=0)])
def test_nor_are_they_on_several_devices_or_beside_a_host(
    technique: DraftedDecoding, split: dict[str, Any]
) -> None:
    """Neither the two layers nor the twelve heads of the draft could be split like the target."""
    setup = base().with_deployment(**split)
    for sequences in (1, 7, 200):
        for context_tokens in (0, 3000):
            assert gain(technique, setup, sequences, context_tokens) <= 1 + 1e-9


@pytest.mark.parametrize(
    "technique", [SpeculativeDecoding(), TreeSpeculation(), BlockwiseDecoding()]
)
def test_the_gain_goes_as_the_batch_passes_the_ridge(technique: DraftedDecoding) -> None:
    gains = [gain(technique, base(), sequences, 64) for sequences in (1, 16, 64, 256, 1024)]
    assert gains[0] > 2
    assert all(a >= b for a, b in pairwise(gains))
    assert gains[-1] < 1


@given(
    alphas=st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted),
    sequences=st.integers(1, 100),
)
def test_a_likelier_acceptance_is_never_slower(alphas: list[float], sequences: int) -> None:
    less, more = (gain(SpeculativeDecoding(alpha=a), base(), sequences, 300) for a in alphas)
    assert less <= more + 1e-12


# Simulations


@pytest.mark.parametrize("technique", TECHNIQUES, ids=lambda technique: str(technique.name))
def test_every_request_gets_its_tokens_with_it_and_without(technique: Technique) -> None:
    requests = Trace(
        tuple(request(str(i), 0.05 * i, 50 + 37 * i % 300, 1 + 29 * i % 90) for i in range(40)),
        "mixed",
    )
    setup = base()
    runs = [
        run_once(requests, s.scenario()) for s in (technique.off(setup), technique.apply(setup))
    ]
    without, with_it = (run.requests.set_index("request_id")["output_tokens"] for run in runs)
    assert (
        with_it.to_dict() == without.to_dict() == {r.request_id: r.output_tokens for r in requests}
    )
    assert all((run.requests["status"] == "finished").all() for run in runs)


@pytest.mark.parametrize(
    "technique",
    [SpeculativeDecoding(), SpeculativeDecoding(alpha=0.9, drafts=8), TreeSpeculation()],
    ids=["chain", "long-chain", "tree"],
)
def test_a_request_alone_gains_what_the_closed_form_says(technique: DraftedDecoding) -> None:
    """Truncation included: passes(64) of the law, at the step times of the mean context."""
    prompt, tokens, count = 500, 64, 1000
    trace, without = apart(count, prompt, tokens + 1), base()
    with_it = technique.apply(without)
    law = law_of(with_it)
    plain, drafted = (run_once(trace, setup.scenario()) for setup in (without, with_it))

    steps = drafted.steps[drafted.steps["decode_sequences"] > 0]
    passes = (steps["start_s"] // FAR_APART_S).value_counts().to_numpy()
    assert len(passes) == count
    assert abs(passes.mean() - law.passes(tokens)) <= 4 * passes.std(ddof=1) / np.sqrt(count)

    mean_context = prompt + (tokens - 1) // 2
    pass_s = drafted_pass_s(with_it.deployment, law.rows, 1, mean_context)
    step_s = plain_step_s(without.deployment, 1, mean_context)
    expected = tokens * step_s / (law.passes(tokens) * pass_s)
    ratios = decode_s(plain) / decode_s(drafted).mean()
    error = decode_s(drafted).std(ddof=1) / decode_s(drafted).mean() / np.sqrt(count)
    assert 4 * error < 0.02
    assert abs(ratios.mean() / expected - 1) <= 4 * error
    assert expected < law.mean_tokens_per_pass() * step_s / pass_s, "truncation costs"


def test_a_large_batch_of_short_contexts_is_served_no_faster() -> None:
    trace = together(256, 16, 40)
    rates = [
        run_once(trace, s.scenario()).summary()["output_throughput_tokens_per_s"]
        for s in (base(), SpeculativeDecoding(alpha=0.6).apply(base()))
    ]
    assert rates[1] <= rates[0]


def test_the_same_seed_draws_the_same_acceptance_at_any_acceptance_rate() -> None:
    """Common random numbers: a likelier acceptance ends no request later."""
    once, again, likelier = (
        decode_s(run_once(apart(20), SpeculativeDecoding(alpha=alpha).apply(base()).scenario()))
        for alpha in (0.5, 0.5, 0.8)
    )
    assert (once == again).all()
    assert (likelier <= once).all()
    assert (likelier < once).any()


def test_a_sequence_has_one_verification_in_flight() -> None:
    """Generation is sequential: a pass begins where the tokens of the last one ended."""
    setup = SpeculativeDecoding().apply(base())
    config = replace(setup.scenario().policies, max_seqs=4, token_budget=2048)
    requests = [request(str(i), 0.0, 20 + i, 30) for i in range(9)]
    verifier = Verifier(law_of(setup))
    run = simulate(
        requests,
        CheckedScheduler(config),
        roofline_step_time(setup.deployment),
        verifier=verifier,
        keep_records=True,
    )
    starts: dict[str, list[int]] = {}
    for record in run.records:
        names = [name for name, *_ in record.entries]
        assert len(set(names)) == len(names)
        for name, start, _, _ in record.entries:
            starts.setdefault(name, []).append(start)
    for places in starts.values():
        assert all(1 <= b - a <= 5 for a, b in pairwise(places[1:]))
    ends, begins = run.steps["end_s"].to_numpy()[:-1], run.steps["start_s"].to_numpy()[1:]
    assert (ends <= begins).all()


def test_prompts_find_the_room_in_a_step_that_they_had() -> None:
    without = base().policies
    for technique in DRAFTED:
        policies = technique.apply(base()).policies
        room = policies.token_budget - policies.max_seqs * (1 + policies.draft_rows)
        assert room == without.token_budget - without.max_seqs
        assert policies.batching == "speculative"


# Refusals


def static() -> Setup:
    return base().with_policies(batching="static")


def uncached() -> Setup:
    return KVCache().off(base())


@pytest.mark.parametrize(
    ("technique", "setup", "reason"),
    [
        (SpeculativeDecoding(), static(), "speculative: needs batching: continuous.*not static"),
        (DiffusionDecoding(), static(), "diffusion: needs batching: continuous"),
        (
            BlockwiseDecoding(),
            SpeculativeDecoding().apply(base()),
            "blockwise: needs batching: continuous, whose decodes it replaces, not speculative",
        ),
        (SelfSpeculation(), uncached(), "self-speculation: not modelled .*without a KV cache"),
        (TreeSpeculation(), ModelCascade().apply(base()), "together with a cascade"),
        (TreeSpeculation(), EarlyExitDecoding().apply(base()), "together with early exit"),
        (EarlyExitDecoding(), TreeSpeculation().apply(base()), "early-exit: not modelled"),
        (ModelCascade(), TreeSpeculation().apply(base()), "cascade: not modelled"),
        (
            SpeculativeDecoding(),
            base(model=find_model("llama-3-8b")),
            "llama-68m has 32000 tokens in its vocabulary, llama-3-8b 128256; .*any_vocabulary",
        ),
        (
            SpeculativeDecoding(draft="llama-2-13b"),
            base(),
            r"the draft llama-2-13b has 1.3e\+10 weights, more than the 6.74e\+09 of llama-2-7b",
        ),
        (
            SpeculativeDecoding(draft_hardware="epyc-cpu"),
            base(),
            "draft_hardware epyc-cpu needs placement=other or placement=overlapped",
        ),
        (SelfSpeculation(layer_share=1), base(), "set layer_share below 1 or context_tokens"),
        (
            ModelCascade(small="llama-2-13b"),
            base(),
            "cascade: llama-2-13b has .* must be the small",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(
    technique: Technique, setup: Setup, reason: str
) -> None:
    with pytest.raises(PolicyError, match=reason):
        technique.apply(setup)


def test_another_vocabulary_is_possible_where_drafts_are_translated() -> None:
    setup = base(model=find_model("llama-3-8b"))
    assert SpeculativeDecoding(any_vocabulary=True).apply(setup).acceptance == Chain(0.7, 4)


@pytest.mark.parametrize(
    ("technique", "parameters", "reason"),
    [
        (SpeculativeDecoding, {"drafts": "0"}, "drafts"),
        (SpeculativeDecoding, {"alpha": "1.2"}, "alpha"),
        (SpeculativeDecoding, {"alpha": "-0.1"}, "alpha"),
        (SpeculativeDecoding, {"placement": "moon"}, "placement"),
        (TreeSpeculation, {"widths": "3x0"}, "widths"),
        (TreeSpeculation, {"widths": "3xtwo"}, "widths"),
        (TreeSpeculation, {"widths": ""}, "widths"),
        (SelfSpeculation, {"layer_share": "0"}, "layer_share"),
        (BlockwiseDecoding, {"block": "1"}, "block"),
        (DiffusionDecoding, {"block_tokens": "1"}, "block_tokens"),
        (DiffusionDecoding, {"passes": "0"}, "passes"),
        (EarlyExitDecoding, {"depths": "0.5x1.5"}, "depths"),
        (EarlyExitDecoding, {"depths": "0.5x1", "shares": "1"}, "2 depths, but 1 shares"),
        (EarlyExitDecoding, {"shares": "0.5x0.4"}, "shares sum to 0.9"),
        (ModelCascade, {"small_share": "2"}, "small_share"),
    ],
)
def test_impossible_parameters_are_named(
    technique: type[Technique], parameters: dict[str, str], reason: str
) -> None:
    with pytest.raises(ValidationError, match=reason):
        technique.model_validate(parameters)


def test_lists_are_written_with_an_x() -> None:
    tree = TreeSpeculation.model_validate({"widths": "3x2x1x1"})
    assert tree.apply(base()).acceptance == Tree(0.6, (3, 2, 1, 1))
    exits = EarlyExitDecoding.model_validate({"depths": "0.25x1", "shares": "0.5x0.5"})
    assert exits.exits.exits == ((0.25, 0.5), (1.0, 0.5))


def test_the_laws_are_those_of_the_parameters() -> None:
    laws = [law_of(technique.apply(base())) for technique in DRAFTED]
    assert laws == [
        Chain(0.7, 4),
        Tree(0.6, (3, 2, 1, 1)),
        Chain(0.8, 4),
        Blockwise(0.7, 4),
        Diffusion(32, 8),
    ]
    drafting = SpeculativeDecoding(placement="overlapped", draft_hardware="epyc-cpu")
    assert drafting.apply(base()).deployment.drafting == Drafting(
        DRAFT, (1, 1, 1, 1), "overlapped", find_hardware("epyc-cpu")
    )


# The page


def rows_of(heading: str) -> list[list[str]]:
    """Cells of the table whose first column is so headed."""
    table = re.search(rf"^\| {re.escape(heading)} .*\n\|[-| ]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert table
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[1].splitlines()]


def test_every_technique_has_its_section_with_its_parameters() -> None:
    for technique in TECHNIQUES:
        section = re.search(rf"^## {technique.name}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.M)
        assert section
        assert [p for p in type(technique).model_fields if f"`{p}`" not in PAGE] == []


def test_the_gains_on_the_page_are_those_of_the_model() -> None:
    for sequences, *gains in rows_of("sequences"):
        expected = [
            gain(technique, base(), int(sequences), context_tokens)
            for technique in (SpeculativeDecoding(), TreeSpeculation())
            for context_tokens in (128, 2000)
        ]
        assert gains == [f"{value:.2f}" for value in expected]


def test_the_numbers_of_drafts_on_the_page_are_the_best() -> None:
    for alpha, *best in rows_of("α"):
        assert best == [str(best_drafts(float(alpha), share)) for share in (0.01, 0.05, 0.1, 0.2)]


def test_the_exits_on_the_page_are_those_of_the_model() -> None:
    technique = EarlyExitDecoding()
    with_it = technique.apply(base()).deployment
    for sequences, read, gained in rows_of("decodes"):
        count = int(sequences)
        ratio = plain_step_s(ideal(), count, 128) / plain_step_s(with_it, count, 128)
        assert (read, gained) == (f"{technique.exits.read_depth(count):.3f}", f"{ratio:.2f}")
