"""Pruning, sparsity, shared layers, distillation: what is left, and what a step then takes."""

from dataclasses import replace

import pytest

from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.formats import FORMATS
from servetwin.sim.step_times.roofline.operators import linear_operators
from servetwin.sim.step_times.roofline.parallel import Parallel
from servetwin.sim.techniques.compression import (
    Distillation,
    SemiStructuredSparsity,
    StructuredPruning,
    UnstructuredPruning,
    WeightSharing,
)
from servetwin.sim.techniques.setup import Setup
from servetwin.workloads.errors import PolicyError
from tests.support.number_techniques import (
    H100,
    LLAMA,
    LLAMA_ON_A100,
    decodes,
    products,
    prompt,
    seconds,
)


def test_structured_pruning_leaves_a_smaller_model() -> None:
    pruned = StructuredPruning(kept_heads=0.75, kept_ffn=0.5).apply(Setup.of(LLAMA_ON_A100))
    model, group = pruned.deployment.model, pruned.deployment.model.layers[0]
    assert model.kv_elements_per_token() == 0.75 * LLAMA.kv_elements_per_token()
    attention, ffn = 4 * 4096 * 4096, 3 * 4096 * 11008
    assert model.linear_params() == 32 * (0.75 * attention + 0.5 * ffn)
    assert group.mixer.kv_groups() == 24
    faster = seconds(LLAMA_ON_A100, prompt(2048)) / seconds(pruned.deployment, prompt(2048))
    assert 1 < faster < LLAMA.linear_params() / model.linear_params()


@pytest.mark.parametrize("name", ["llama-3-8b", "mixtral-8x7b", "deepseek-v3", "qwen3-8b"])
def test_every_kind_of_attention_and_ffn_can_be_pruned(name: str) -> None:
    model = find_model(name)
    parallel = Parallel(tensor=8)
    setup = Setup.of(Deployment(model, H100, parallel=parallel))
    pruned = StructuredPruning(kept_heads=0.5, kept_ffn=0.5).apply(setup).deployment.model
    assert pruned.linear_params() < 0.6 * model.linear_params()
    assert StructuredPruning(kept_heads=1, kept_ffn=1).apply(setup).deployment.model.layers == (
        model.layers
    )


def test_recurrent_layers_have_no_heads_to_prune() -> None:
    mamba = Setup.of(replace(LLAMA_ON_A100, model=find_model("mamba-2.8b")))
    with pytest.raises(PolicyError, match="have no heads; set kept_heads to 1"):
        StructuredPruning().apply(mamba)
    assert StructuredPruning(kept_heads=1).apply(mamba).deployment.model.layer_count == 64


def test_unstructured_pruning_saves_memory_and_no_time() -> None:
    sparse = UnstructuredPruning(sparsity=0.5).apply(Setup.of(LLAMA_ON_A100)).deployment
    assert sparse.weight_bytes() == pytest.approx((0.5 * 2 + 0.125) * LLAMA.params())
    for shape in (prompt(512), decodes(1, 128)):
        assert seconds(sparse, shape) == seconds(LLAMA_ON_A100, shape)


def test_each_round_of_pruning_drops_a_share_of_what_is_left() -> None:
    pruned = UnstructuredPruning(sparsity=0.2, rounds=3).apply(Setup.of(LLAMA_ON_A100)).deployment
    assert pruned.decode.bytes_in_memory == pytest.approx(0.8**3 * 2 + 0.125)
    assert pruned.decode.grid is None, "a formula of noise knows no zeros"


@pytest.mark.parametrize(("name", "ratio"), [("bf16", 0.5625), ("int8", 0.625), ("w8a8", 0.625)])
def test_two_of_four_weights(name: str, ratio: float) -> None:
    form = FORMATS[name]
    dense = replace(LLAMA_ON_A100, prefill=form, decode=form)
    sparse = SemiStructuredSparsity().apply(Setup.of(dense)).deployment
    assert sparse.weight_bytes() == pytest.approx(ratio * dense.weight_bytes())
    bytes_read = [linear_operators(d, 1, False)[0].moved_bytes for d in (dense, sparse)]
    assert bytes_read[1] == pytest.approx(ratio * bytes_read[0])
    assert products(sparse, 4096) == pytest.approx(products(dense, 4096) / 2)


def test_shared_layers_save_memory_and_no_time() -> None:
    shared = WeightSharing(layers=4).apply(Setup.of(LLAMA_ON_A100)).deployment
    saved = LLAMA_ON_A100.weight_bytes() - shared.weight_bytes()
    assert saved == pytest.approx(0.75 * 2 * LLAMA.linear_params())
    for shape in (prompt(512), decodes(1, 128)):
        assert seconds(shared, shape) == seconds(LLAMA_ON_A100, shape)


def test_a_student_serves_in_its_own_shape() -> None:
    setup = Distillation(student="tinyllama-1.1b").apply(Setup.of(LLAMA_ON_A100))
    assert setup.deployment.model == find_model("tinyllama-1.1b")
    assert setup.policies.max_model_len == setup.deployment.model.max_model_len
