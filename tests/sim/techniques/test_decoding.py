"""Techniques of decoding: gains of blocks, exits and cascades, and what is refused."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.catalogue.hardware import Hardware
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.step_times.acceptance import Chain, Diffusion, Tree
from servetwin.sim.step_times.roofline.deployment import Drafting, EarlyExit
from servetwin.sim.techniques.decoding import (
    BlockwiseDecoding,
    DiffusionDecoding,
    EarlyExitDecoding,
    ModelCascade,
)
from servetwin.sim.techniques.drafting import SelfSpeculation, SpeculativeDecoding, TreeSpeculation
from servetwin.sim.techniques.memory import KVCache
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import Technique
from servetwin.workloads.errors import PolicyError
from tests.support.acceptance import mean_passes
from tests.support.decoding_techniques import (
    A100,
    BYTES_PER_S,
    DRAFT,
    DRAFTED,
    TARGET,
    apart,
    base,
    gain,
    ideal,
    law_of,
)
from tests.support.formulas.speculation import drafted_pass_s, plain_step_s
from tests.support.formulas.techniques import early_exit_gain_limit, routed_cost

H100: Hardware = find_hardware("h100")


def test_leaving_half_way_three_times_in_four_gains_1_6() -> None:
    law = EarlyExitDecoding(depths=(0.5, 1.0), shares=(0.75, 0.25)).exits
    assert law.mean_depth() == 0.625
    assert early_exit_gain_limit(law) == 1.6


def test_a_hundred_tokens_in_blocks_of_four_are_26_passes() -> None:
    """The prompt's pass predicts the first block and yields a token of its own."""
    setup = BlockwiseDecoding(alpha=1.0, block=4).apply(base())
    run = run_once(apart(1, output=101), setup.scenario())
    assert int(run.steps["steps"].sum()) == 26
    assert mean_passes(Chain(1.0, 3), 100) == 25  # and one for the prompt


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


def test_the_first_token_of_a_diffusion_waits_for_its_whole_block() -> None:
    """TTFT is that of the prompt and of all passes of a block, and the answer two blocks long."""
    setup = DiffusionDecoding(block_tokens=32, passes=8).apply(base())
    plain, blocks = (run_once(apart(1, output=64), s.scenario()) for s in (base(), setup))
    prompt_s = plain.requests["ttft_s"][0]
    durations_s = (blocks.steps["end_s"] - blocks.steps["start_s"]).tolist()
    assert blocks.steps["steps"].tolist() == [1, 8, 8]
    assert blocks.requests["ttft_s"][0] == pytest.approx(sum(durations_s[:2]))
    assert blocks.requests["e2e_s"][0] == pytest.approx(sum(durations_s))
    assert durations_s[0] == pytest.approx(prompt_s)


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


# Refusals
def static() -> Setup:
    return base().with_policies(batching="static")


def uncached() -> Setup:
    return KVCache().off(base())


@pytest.mark.parametrize(
    ("technique", "setup", "reason"),
    [
        (SpeculativeDecoding(), static(), "speculative: draft_rows: 4 would .*, not static; leave"),
        (DiffusionDecoding(), static(), "diffusion: draft_rows: 31 would change nothing"),
        (
            BlockwiseDecoding(),
            SpeculativeDecoding().apply(base()),
            "blockwise: not modelled together with passes of several tokens",
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
        Chain(0.7, 3),
        Diffusion(32, 8),
    ]
    drafting = SpeculativeDecoding(placement="overlapped", draft_hardware="epyc-cpu")
    assert drafting.apply(base()).deployment.drafting == Drafting(
        DRAFT, (1, 1, 1, 1), "overlapped", find_hardware("epyc-cpu")
    )
