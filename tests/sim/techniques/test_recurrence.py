"""Constant states in the place of keys and values: sizes of models, and time without contexts."""

import pytest

from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.catalogue.layers import Attention, Dense, Recurrence
from servetwin.sim.catalogue.model import LayerGroup, ModelShape
from servetwin.sim.techniques.attention import LinearAttention, StateSpace
from servetwin.sim.techniques.technique import Technique
from servetwin.workloads.errors import PolicyError
from tests.support.attention_techniques import LLAMA, applied, ideal, layers_of, step_s

GPT3_XL_LIKE = LLAMA.model_copy(
    update={
        "width": 2560,
        "layers": (
            LayerGroup(
                count=32,
                mixer=Attention(heads=32, kv_heads=32, head_dim=80),
                ffn=Dense(width=4 * 2560, matrices=2),
            ),
        ),
    }
)
"""The transformer of 2.7B that Mamba-2.8B is compared with: 12 d^2 weights in each of 32 layers."""


def test_two_mamba_blocks_take_the_place_of_a_layer() -> None:
    """Gu 2023: two blocks of 6 d^2 match an attention and an FFN of 12 d^2."""
    blocks = applied(GPT3_XL_LIKE, StateSpace(expand=2)).layers
    assert blocks == find_model("mamba-2.8b").layers
    layer, block = 12 * 2560**2, blocks[0].mixer.params(2560)
    assert 1 < 2 * block / layer < 1.05


@pytest.mark.parametrize("model", ["llama-2-7b", "llama-3-8b", "opt-13b", "gpt-3-175b"])
@pytest.mark.parametrize(
    "technique",
    [StateSpace(), StateSpace(ffn="kept"), StateSpace(state_dim=128, attention_every=8)],
    ids=["replaced", "kept", "hybrid"],
)
def test_the_model_is_as_large_as_it_was(technique: StateSpace, model: str) -> None:
    before = find_model(model)
    after = applied(before, technique)
    assert after.params() == pytest.approx(before.params(), rel=2e-4)
    assert after.params() == after.active_params()


def test_a_hybrid_keeps_one_layer_in_so_many_as_it_was() -> None:
    mixed = applied(layers_of(36), StateSpace(attention_every=4)).layers
    assert [group.count for group in mixed] == [2 * 27, 9]
    assert isinstance(mixed[0].mixer, Recurrence)
    assert mixed[1] == layers_of(9).layers[0]
    jamba = applied(layers_of(36), StateSpace(attention_every=4, ffn="kept")).layers
    assert [group.count for group in jamba] == [27, 9]
    assert {group.ffn for group in jamba} == {Dense(width=11008)}


def test_experts_stay_where_the_ffn_is_kept() -> None:
    mixtral = find_model("mixtral-8x7b")
    mixed = applied(mixtral, StateSpace(ffn="kept"))
    assert mixed.layers[0].ffn == mixtral.layers[0].ffn
    assert mixed.active_params() == pytest.approx(mixtral.active_params(), rel=1e-4)


def test_states_of_known_models() -> None:
    mamba_like = LLAMA.model_copy(update={"width": 2560, "layers": layers_of(64).layers})
    ssm = applied(mamba_like, StateSpace(expand=2, ffn="kept"))
    assert ssm.state_elements() == 5_242_880
    assert ssm.state_elements() / 163_840 == 32  # tokens of a transformer of 32 layers, 2560 wide
    assert applied(LLAMA, LinearAttention()).state_elements() == 16_777_216
    own = find_model("mamba-2.8b").layers[0].mixer
    assert ssm.layers[0].mixer == own


def test_the_part_of_a_long_context_that_stays() -> None:
    """Nine layers of 36 keep keys and values, the other 27 a state."""
    full, technique = layers_of(36), StateSpace(attention_every=4, expand=2, ffn="kept")
    kept = applied(full, technique).resident_kv_elements(32_768)
    share = 0.25 + 27 * 2 * 4096 * 16 / (36 * 32_768 * 8192)
    assert kept / full.resident_kv_elements(32_768) == pytest.approx(share, abs=5e-6)


@pytest.mark.parametrize("technique", [StateSpace(), LinearAttention()])
def test_states_make_a_step_independent_of_the_context(technique: Technique) -> None:
    setup = technique.apply(ideal(LLAMA))
    assert step_s(setup, 4, 10) == step_s(setup, 4, 1_000_000)
    assert step_s(ideal(LLAMA), 4, 10) < step_s(ideal(LLAMA), 4, 1000)


def test_of_equal_models_the_one_with_a_state_reads_no_keys() -> None:
    """The same weights: without a context equal steps, with one the difference is its keys."""
    plain, ssm = ideal(LLAMA), StateSpace().apply(ideal(LLAMA))
    assert step_s(ssm, 1, 1) == pytest.approx(step_s(plain, 1, 1), rel=5e-3)
    keys_s = 4000 * 524_288 / 2.039e12
    assert step_s(plain, 1, 4000) - step_s(ssm, 1, 4000) == pytest.approx(keys_s, rel=0.02)


NONSENSE: list[tuple[StateSpace, ModelShape, str]] = [
    (StateSpace(attention_every=40), LLAMA, "one layer in 40 cannot stay"),
    (StateSpace(), find_model("mamba-2.8b"), "state-space: mamba-2.8b has no attention"),
    (StateSpace(), find_model("mixtral-8x7b"), "state-space: ffn: blocks as large as the experts "
     "of mixtral-8x7b would compute all that these skip; set ffn=kept"),
]  # fmt: skip


@pytest.mark.parametrize(("technique", "model", "message"), NONSENSE)
def test_what_makes_no_sense_is_refused_with_the_reason(
    technique: StateSpace, model: ModelShape, message: str
) -> None:
    with pytest.raises(PolicyError) as caught:
        technique.apply(ideal(model))
    assert message in str(caught.value)
