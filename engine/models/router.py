"""Which experts a token uses, and how much each of them counts."""

import torch
from torch import Tensor

from servetwin.engine.models.expert_config import ExpertConfig
from servetwin.engine.models.linear import MakeLinear
from servetwin.engine.models.weights import ExpertWeights


class Router:
    """Scores all experts of a layer and takes the best ones."""

    def __init__(
        self, config: ExpertConfig, weights: ExpertWeights, make_linear: MakeLinear
    ) -> None:
        self._config = config
        self._scores = make_linear("router", weights.router)
        self._choice_bias = weights.choice_bias

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the experts of each row and their weights, each [rows, top k]."""
        config, logits = self._config, self._scores(x).float()
        scores = logits.softmax(-1) if config.scoring == "softmax" else logits.sigmoid()
        eligible = scores if self._choice_bias is None else scores + self._choice_bias
        if config.groups > 1:
            eligible = self._of_best_groups(eligible)
        chosen = eligible.topk(config.top_k, dim=-1).indices
        weights = scores.gather(1, chosen)
        if config.normalise:
            weights = weights / weights.sum(-1, keepdim=True)
        return chosen, (weights * config.scale).to(x.dtype)

    def _of_best_groups(self, scores: Tensor) -> Tensor:
        """Return the scores with those of all but the best groups at minus infinity."""
        grouped = scores.view(len(scores), self._config.groups, -1)
        best = grouped.topk(self._config.group_scorers, dim=-1).values.sum(-1)
        kept = best.topk(self._config.top_groups, dim=-1).indices
        hidden = torch.ones_like(best, dtype=torch.bool).scatter_(1, kept, False)
        return grouped.masked_fill(hidden.unsqueeze(-1), -torch.inf).flatten(1)
