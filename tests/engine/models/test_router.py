"""Which experts a token uses, on scores that are given."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from servetwin.engine.models.experts import Router
from servetwin.engine.models.linear import Linear, LinearMap
from servetwin.engine.models.model_config import ExpertConfig

CONFIG = ExpertConfig(experts=4, top_k=2, ffn_size=1)
CHANCES = torch.tensor([0.1, 0.2, 0.3, 0.4])


def plain(name: str, weight: Tensor) -> LinearMap:
    assert name == "router"
    return Linear(weight, prepack=False)


def route(config: ExpertConfig, logits: Tensor, bias: Tensor | None = None) -> dict[int, float]:
    """Weight by chosen expert for one row with such logits."""
    weights = {"router": torch.diag(logits)} | ({} if bias is None else {"choice_bias": bias})
    chosen, shares = Router(config, weights, plain)(torch.ones(1, len(logits)))
    return dict(zip(chosen[0].tolist(), shares[0].tolist(), strict=True))


def test_the_best_experts_share_one_or_keep_their_chances() -> None:
    logits = CHANCES.log()
    assert route(CONFIG, logits) == pytest.approx({3: 4 / 7, 2: 3 / 7})
    plain_chances = replace(CONFIG, normalise=False, scale=2.0)
    assert route(plain_chances, logits) == pytest.approx({3: 0.8, 2: 0.6})


def test_a_bias_counts_for_the_choice_and_not_for_the_weight() -> None:
    sigmoid = replace(CONFIG, scoring="sigmoid", normalise=False)
    bias = torch.tensor([1.0, 0, 0, 0])
    assert route(sigmoid, CHANCES.logit(), bias) == pytest.approx({0: 0.1, 3: 0.4})


@pytest.mark.parametrize(("scorers", "chosen"), [(1, {3, 2}), (2, {0, 1})])
def test_experts_come_from_the_group_whose_best_ones_score_highest(
    scorers: int, chosen: set[int]
) -> None:
    config = replace(CONFIG, scoring="sigmoid", groups=2, group_scorers=scorers)
    scores = torch.tensor([0.6, 0.6, 0.3, 0.7])
    assert set(route(config, scores.logit())) == chosen
