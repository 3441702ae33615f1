"""Techniques that change attention: bytes, intensities, time of a step, and what is refused."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.catalogue.layers import Attention, Dense, LatentAttention, Mixer
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.efficiency import DEFAULT, IDEAL, Efficiency
from servetwin.sim.step_times.roofline.operators import decode_attention
from servetwin.sim.techniques.attention import (
    CrossLayer,
    Dilated,
    GroupedQuery,
    KVBudget,
    MultiHeadLatent,
    MultiQuery,
    SlidingWindow,
    Streaming,
)
from servetwin.sim.techniques.experts import MixtureOfExperts
from servetwin.sim.techniques.memory import LowRankKV
from servetwin.sim.techniques.technique import Technique
from servetwin.workloads.errors import PolicyError
from tests.support.attention_techniques import A100, LLAMA, MLA, applied, ideal, layers_of, step_s
from tests.support.effort import examples

LLAMA_13B = find_model("llama-2-13b")


@pytest.mark.parametrize(
    ("model", "techniques", "expected"),
    [
        ("llama-2-13b", [], 819_200),
        ("llama-2-13b", [GroupedQuery(kv_heads=8)], 163_840),
        ("llama-2-13b", [MultiQuery()], 20_480),
        ("llama-2-13b", [CrossLayer()], 409_600),
        ("llama-2-13b", [CrossLayer(layers=2), GroupedQuery(kv_heads=8)], 81_920),  # a tenth
        ("llama-2-7b", [], 524_288),
        ("llama-2-7b", [MLA], 36_864),  # 32 layers of 576
        ("llama-2-7b", [SlidingWindow()], 524_288),  # as long as the window is not full
        ("deepseek-v2", [], 69_120),
        ("deepseek-v2", [MultiHeadLatent()], 69_120),
    ],
)
def test_keys_and_values_of_a_token_in_bytes(
    model: str, techniques: list[Technique], expected: int
) -> None:
    assert applied(find_model(model), *techniques).kv_elements_per_token() * 2 == expected


def test_fewer_key_and_value_heads_are_fewer_weights_too() -> None:
    """The table of CS336: a 13B model has 11.3e9 weights with 8 instead of 40 heads of K and V."""
    assert LLAMA_13B.params() == 13_015_449_600
    assert applied(LLAMA_13B, GroupedQuery(kv_heads=8)).params() == 11_337_728_000


def test_a_latent_is_a_small_part_of_full_keys_and_values() -> None:
    latent = find_model("deepseek-v2")
    mixer = latent.layers[0].mixer
    assert isinstance(mixer, LatentAttention)
    keys = mixer.heads * mixer.value_dim
    assert keys / mixer.latent_dim == 32
    assert keys / mixer.kv_elements() == pytest.approx(28.44, abs=5e-3)
    full = MLA.off(ideal(latent)).deployment.model
    assert full.kv_elements_per_token() * 2 == 3_932_160
    ratio = full.kv_elements_per_token() / latent.kv_elements_per_token()
    assert ratio == pytest.approx(56.9, abs=0.05)


def test_latent_decode_does_many_flops_with_what_it_reads() -> None:
    """2176 h per cached token of 576 elements, about 3.8 h per element."""
    mixer = find_model("deepseek-v2").layers[0].mixer
    assert mixer.decode_flops_per_pair() == 2176 * 128
    assert mixer.decode_flops_per_pair() / mixer.kv_elements() / 128 == pytest.approx(3.8, abs=0.03)


@pytest.mark.parametrize(
    ("technique", "context", "share"),
    [
        (SlidingWindow(window_tokens=4096), 32_768, 4096 / 32_768),
        (SlidingWindow(window_tokens=4096), 1000, 1.0),
        (SlidingWindow(window_tokens=1024, global_every=6), 32_768, 0.19271),
        (Streaming(sink_tokens=4, window_tokens=4096), 32_768, 4100 / 32_768),
        (Streaming(sink_tokens=4, window_tokens=4096), 4_000_000, 4100 / 4_000_000),
        (KVBudget(recent_tokens=512, heavy_tokens=512), 8192, 1 / 8),
        (Dilated(dilation=4), 8192, 1.0),  # what one token skips, the next one sees
        (Dilated(dilation=4, window_tokens=2048), 8192, 1 / 4),
        (LowRankKV(rank=128), 8192, 128 * (8192 + 4096) / (8192 * 4096)),
    ],
)
def test_the_part_of_a_long_context_that_stays(
    technique: Technique, context: int, share: float
) -> None:
    full = layers_of(36)
    kept = applied(full, technique).resident_kv_elements(context)
    assert kept / full.resident_kv_elements(context) == pytest.approx(share, abs=5e-6)


NONSENSE: list[tuple[Technique, str, str]] = [
    (GroupedQuery(kv_heads=7), "llama-2-7b", "grouped-query: 7 kv_heads are not possible for "
     "llama-2-7b, which has 32 heads and 32 kv_heads; they must divide"),
    (GroupedQuery(kv_heads=64), "llama-2-7b", "64 kv_heads are not possible"),
    (GroupedQuery(kv_heads=16), "llama-3-8b", "which has 32 heads and 8 kv_heads"),
    (GroupedQuery(), "deepseek-v2", "deepseek-v2 has no attention with key and value heads"),
    (MultiQuery(), "mamba-2.8b", "mamba-2.8b has no attention with key and value heads"),
    (MultiHeadLatent(), "llama-2-7b", "llama-2-7b has no latent attention; to give it some, say "
     "latent_dim, rope_dim, nope_dim, value_dim"),
    (MultiHeadLatent(latent_dim=512, rope_dim=64), "llama-2-7b", "say nope_dim, value_dim"),
    (CrossLayer(layers=3), "llama-2-7b", "32 equal layers of llama-2-7b cannot share keys and "
     "values by 3; layers must divide 32"),
    (SlidingWindow(global_every=33), "llama-2-7b", "one layer in 33 cannot stay as it is, "
     "llama-2-7b has 32 equal layers; at most one in 32"),
    (SlidingWindow(), "mamba-2.8b", "sliding-window: mamba-2.8b has no attention"),
    (LowRankKV(rank=4096), "llama-2-7b", "rank 4096 saves nothing where K and V are 4096 wide; it "
     "must be less than 4096"),
]  # fmt: skip


@pytest.mark.parametrize(("technique", "model", "message"), NONSENSE)
def test_what_makes_no_sense_is_refused_with_the_reason(
    technique: Technique, model: str, message: str
) -> None:
    with pytest.raises(PolicyError) as caught:
        technique.apply(ideal(find_model(model)))
    assert message in str(caught.value)


mixers: st.SearchStrategy[Mixer] = st.sampled_from(
    [
        Attention(heads=32, kv_heads=32, head_dim=128),
        Attention(heads=32, kv_heads=8, head_dim=128, kv_sharing=2),
        Attention(heads=32, kv_heads=1, head_dim=64, rank=32),
        LatentAttention(heads=128, latent_dim=512, rope_dim=64, nope_dim=128, value_dim=128),
    ]
)


@given(mixer=mixers, batch=st.integers(1, 1000), context=st.integers(1, 100_000))
def test_the_intensity_of_decode_attention_does_not_depend_on_the_batch(
    mixer: Mixer, batch: int, context: int
) -> None:
    deployment = Deployment(LLAMA, A100)
    alone, together = (
        decode_attention(deployment, mixer, tokens, 32) for tokens in (context, batch * context)
    )
    assert together.flops / together.moved_bytes == pytest.approx(
        alone.flops / alone.moved_bytes, rel=1e-12
    )


@pytest.mark.parametrize(("kv_heads", "intensity"), [(32, 1), (8, 4), (1, 32)])
def test_query_heads_that_share_keys_raise_the_intensity(kv_heads: int, intensity: float) -> None:
    """h / k FLOPs per byte at two bytes: each element of K and V serves h / k heads."""
    mixer = Attention(heads=32, kv_heads=kv_heads, head_dim=128)
    operator = decode_attention(Deployment(LLAMA, A100), mixer, 999, 1)
    assert operator.flops / operator.moved_bytes == intensity


CLAIMS: list[tuple[Technique, Callable[[int], float]]] = [
    (GroupedQuery(kv_heads=8), lambda _: 4.0),
    (MultiQuery(), lambda _: 32.0),
    (MLA, lambda _: 8192 / 576),
    (CrossLayer(layers=4), lambda _: 4.0),
    (SlidingWindow(window_tokens=500), lambda context: max(1, context / 500)),
    (
        SlidingWindow(window_tokens=500, global_every=4),
        lambda context: 4 / (1 + 3 * min(1, 500 / context)),
    ),
    (Dilated(dilation=3), lambda _: 3.0),
    (KVBudget(recent_tokens=300, heavy_tokens=100), lambda context: max(1, context / 400)),
    (Streaming(window_tokens=500), lambda context: max(1, context / 504)),
    (LowRankKV(rank=64), lambda context: max(1, context * 4096 / (64 * (context + 4096)))),
    (MixtureOfExperts(), lambda _: (4 + 3 * 2.6875) / (4 + 3 * 2.6875 / 4)),
    (MixtureOfExperts(compare="active"), lambda _: 1.0),
]


@pytest.mark.parametrize("efficiency", [IDEAL, DEFAULT], ids=["ideal", "default"])
@pytest.mark.parametrize(("technique", "ratio"), CLAIMS, ids=lambda value: type(value).__name__)
@settings(max_examples=examples(25))
@given(batch=st.integers(1, 300), context=st.integers(1, 30_000))
def test_no_speed_up_exceeds_its_ratio_of_bytes(
    technique: Technique,
    ratio: Callable[[int], float],
    efficiency: Efficiency,
    batch: int,
    context: int,
) -> None:
    off = ideal(LLAMA, efficiency)
    gain = step_s(off, batch, context) / step_s(technique.apply(off), batch, context)
    assert gain <= ratio(context) * (1 + 1e-6)


@pytest.mark.parametrize(
    ("technique", "ratio"),
    [claim for claim in CLAIMS if not isinstance(claim[0], CrossLayer | MixtureOfExperts)],
    ids=lambda value: type(value).__name__,
)
def test_where_next_to_nothing_else_is_read_the_ratio_is_reached(
    technique: Technique, ratio: Callable[[int], float]
) -> None:
    """A model of width 1 without FFN has attention only."""
    group = layers_of(32).layers[0].model_copy(update={"ffn": Dense(width=0, matrices=0)})
    thin = {"width": 1, "vocabulary": 1, "layers": (group,)}
    off, context = ideal(LLAMA.model_copy(update=thin)), 20_000
    gain = step_s(off, 2000, context) / step_s(technique.apply(off), 2000, context)
    assert gain == pytest.approx(ratio(context), rel=0.01)


def test_layers_that_share_keys_and_values_still_read_them() -> None:
    """At equal batch only the projections' weights are saved."""
    off = ideal(LLAMA)
    on = CrossLayer(layers=4).apply(off)
    weights_s = (off.deployment.weight_bytes() - on.deployment.weight_bytes()) / 2.039e12
    gain_s = step_s(off, 8, 5000) - step_s(on, 8, 5000)
    written_s = 8 * 524_288 * 3 / 4 / 2.039e12
    assert gain_s == pytest.approx(weights_s + written_s, rel=1e-6)
