"""The slices of a model together are the model."""

from dataclasses import replace

import pytest
import torch

from servetwin.engine.models.model_config import model_preset
from servetwin.engine.models.weights import LayerWeights, Weights, random_weights
from servetwin.engine.parallel.shards import shard_config, shard_weights
from servetwin.workloads.errors import EngineError

TINY = model_preset("tiny")
BIASED = replace(TINY, qkv_bias=True, ffn_bias=True, attention_out_bias=True, qk_norm=True)


def first_layer(weights: Weights) -> LayerWeights:
    return next(iter(weights.layers))


def test_products_of_the_slices_add_up_to_those_of_the_model() -> None:
    weights = random_weights(BIASED, torch.float32, torch.device("cpu"), seed=0, std=0.06)
    slices = [shard_weights(weights, BIASED, rank, 2) for rank in (0, 1)]
    whole_layer = first_layer(weights)
    parts = [first_layer(own) for own in slices]
    config = shard_config(BIASED, 2)
    heads = [config.heads, config.kv_heads, config.kv_heads]
    whole = whole_layer["qkv"].view(-1, 32, 128).split_with_sizes([2 * count for count in heads])
    divided = [part["qkv"].view(-1, 32, 128).split_with_sizes(heads) for part in parts]
    for rows, expected in zip(zip(*divided, strict=True), whole, strict=True):
        torch.testing.assert_close(torch.cat(rows), expected, rtol=0, atol=0)
    x = torch.randn(3, BIASED.ffn_size)
    first, second = (half @ part["down"].T for half, part in zip(x.chunk(2, 1), parts, strict=True))
    torch.testing.assert_close(first + second, x @ whole_layer["down"].T)
    assert torch.equal(torch.cat([own.head for own in slices]), weights.head)
    bias = whole_layer["attention_out_bias"]
    assert all(part["attention_out_bias"] is bias for part in parts)


@pytest.mark.parametrize(
    ("kv_heads", "held"), [(4, [[0, 1], [2, 3]]), (2, [[0], [1]]), (1, [[0], [0]])]
)
def test_key_heads_are_divided_or_copied(kv_heads: int, held: list[list[int]]) -> None:
    config = replace(TINY, kv_heads=kv_heads)
    weights = random_weights(config, torch.float32, torch.device("cpu"), seed=0, std=0.06)
    keys = first_layer(weights)["qkv"].view(-1, 32, 128)[config.heads :]
    own = shard_config(config, 2)
    assert own.heads == config.heads // 2
    for rank, heads in enumerate(held):
        layer = first_layer(shard_weights(weights, config, rank, 2))
        rows = layer["qkv"].view(-1, 32, 128)[own.heads : own.heads + own.kv_heads]
        assert torch.equal(rows, keys[heads])


@pytest.mark.parametrize(
    ("changes", "ways", "message"),
    [
        ({}, 3, "3 ranks do not divide the heads 4 of model tiny; use a divisor of it"),
        ({"ffn_size": 381}, 2, "2 ranks do not divide the ffn_size 381 of model tiny; use a divis"),
        (
            {"heads": 12, "kv_heads": 3},
            2,
            "2 ranks neither divide the 3 kv_heads of model tiny, nor are they a multiple of them",
        ),
    ],
)
def test_what_cannot_be_divided_is_refused(
    changes: dict[str, int], ways: int, message: str
) -> None:
    with pytest.raises(EngineError, match=f"^tensor_parallel: {message}"):
        shard_config(replace(TINY, **changes), ways)  # type: ignore[arg-type]
