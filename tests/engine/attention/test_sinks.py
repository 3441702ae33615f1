"""One product has the scores of turned queries at the sinks, and of plain ones elsewhere."""

import numpy as np
import pytest
import torch

from servetwin.engine.attention.rolling import sink_turn, with_sink_columns
from servetwin.engine.kv.forgetting import KeptTokens
from servetwin.engine.models.model_config import model_preset
from servetwin.engine.models.rotary import RotaryTable, rotary_frequencies

MODEL, CPU, ROWS, SINKS = model_preset("tiny"), torch.device("cpu"), 9, 3
KEPT = KeptTokens(window=4, sinks=SINKS)
FLOAT32_ROUNDING = torch.finfo(torch.float32).eps / 2


def heads(seed: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(ROWS, *shape, MODEL.head_dim, generator=generator)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scores_at_the_sinks_are_of_turned_queries(dtype: torch.dtype) -> None:
    """Two columns round twice, after sums in float32, whose roundings add up like a random walk.

    In bfloat16 one column alone would round a score of 10 by up to 0.03.
    """
    queries, keys = 3 * heads(1, 2, 3).to(dtype), 3 * heads(2, 2).to(dtype)
    turn = sink_turn(np.arange(ROWS), KEPT, rotary_frequencies(MODEL, CPU), dtype)
    asked, found, values = with_sink_columns(queries, keys, heads(3, 2).to(dtype), SINKS, turn)
    scores = torch.einsum("qhgd,khd->qhgk", asked.double(), found.double())
    cos, sin = (factor.unsqueeze(1).to(dtype) for factor in turn)
    half = MODEL.head_dim // 2
    turned = torch.addcmul(queries * cos, queries.roll(half, 3), sin)
    at_sinks = torch.einsum("qhgd,khd->qhgk", turned.double(), keys[:SINKS].double())
    plain = torch.einsum("qhgd,khd->qhgk", queries.double(), keys[SINKS:].double())
    assert (scores[..., SINKS:] - plain).abs().max() < 1e-9
    sizes = torch.einsum("qhgd,khd->qhgk", turned.double().abs(), keys[:SINKS].double().abs())
    bound = MODEL.head_dim**0.5 * FLOAT32_ROUNDING * sizes
    bound += (torch.finfo(dtype).eps / 2) ** 2 * at_sinks.abs()
    assert ((scores[..., :SINKS] - at_sinks).abs() <= bound).all()
    assert at_sinks.abs().max() > 10, "a bound means nothing for small scores"
    assert values.shape == found.shape
    assert not values[..., MODEL.head_dim :].any()


def test_a_query_is_turned_back_to_its_place_in_the_cache() -> None:
    """Position p has place min(p, 6) in a cache of seven; a turn of what stays is none."""
    query = torch.randn(1, 1, MODEL.head_dim, generator=torch.Generator().manual_seed(4))
    frequencies = rotary_frequencies(MODEL, CPU)
    table = RotaryTable(MODEL, torch.float32, CPU)
    cos, sin = sink_turn(np.arange(20), KEPT, frequencies, torch.float32)
    assert torch.equal(cos[:7], torch.ones_like(cos[:7]))
    assert not sin[:7].any()
    half = MODEL.head_dim // 2
    for position in (6, 7, 19):
        here = [factor[0] for factor in table.at(torch.tensor([position]), 20)]
        there = [factor[0] for factor in table.at(torch.tensor([min(position, 6)]), 20)]
        asked = torch.addcmul(query * here[0], query.roll(half, 2), here[1])
        turned = torch.addcmul(asked * cos[position], asked.roll(half, 2), sin[position])
        wanted = torch.addcmul(query * there[0], query.roll(half, 2), there[1])
        assert (turned - wanted).abs().max() < 1e-5
