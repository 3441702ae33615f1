"""Random weights: their number, their seed, their distribution."""

from dataclasses import replace

import pytest
import torch

from servetwin.engine.models.model_config import ModelConfig, model_preset
from servetwin.engine.models.tensor_layout import parameters
from servetwin.engine.models.weights import Weights, random_weights
from tests.support.model_matrix import ALL_MODELS
from tests.support.nested_tensors import tensors_of

CPU = torch.device("cpu")


TINY = replace(model_preset("tiny"), tie_embeddings=False)


def tiny_weights(seed: int = 0, dtype: torch.dtype = torch.float32) -> Weights:
    return random_weights(TINY, dtype, CPU, seed=seed, std=0.06)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("config", [TINY, *ALL_MODELS.values()], ids=["plain", *ALL_MODELS])
def test_weights_are_as_many_as_the_config_says(config: ModelConfig, tied: bool) -> None:
    config = replace(config, tie_embeddings=tied)
    weights = random_weights(config, torch.float32, CPU, seed=0, std=0.02)
    distinct = {tensor.data_ptr(): tensor.numel() for tensor in tensors_of(weights)}
    assert sum(distinct.values()) == parameters(config)


def test_a_seed_gives_the_same_weights_and_another_seed_others() -> None:
    for first, again, other in zip(
        tensors_of(tiny_weights(1)),
        tensors_of(tiny_weights(1)),
        tensors_of(tiny_weights(2)),
        strict=True,
    ):
        assert torch.equal(first, again)
        assert not torch.equal(first, other)


def test_bfloat16_weights_are_the_rounded_float32_weights() -> None:
    for exact, rounded in zip(
        tensors_of(tiny_weights()), tensors_of(tiny_weights(dtype=torch.bfloat16)), strict=True
    ):
        assert torch.equal(exact.bfloat16(), rounded)


def test_weights_have_the_asked_deviation_around_zero_and_norms_around_one() -> None:
    weights = tiny_weights()
    assert weights.embedding.std().item() == pytest.approx(0.06, rel=0.01)
    assert abs(weights.embedding.mean().item()) < 0.001
    assert weights.final_norm.mean().item() == pytest.approx(1.0, abs=0.02)
    assert weights.final_norm.std() > 0
