"""A mixture of experts: rows sorted by expert, one product for each expert that is used."""

import torch
from torch import Tensor

from servetwin.engine.models.expert_config import ExpertConfig
from servetwin.engine.models.feed_forward import FeedForward
from servetwin.engine.models.linear import MakeLinear, within
from servetwin.engine.models.operators import PLAIN, Operators
from servetwin.engine.models.router import Router
from servetwin.engine.models.weights import ExpertWeights


class Experts:
    """Each row's weighted sum of its experts, and of the network that all rows share.

    The host waits for the number of rows of each expert (on CUDA once a layer). A row's experts
    are added in the order of its choice, so its sum does not depend on the batch.
    """

    def __init__(
        self,
        config: ExpertConfig,
        weights: ExpertWeights,
        make_linear: MakeLinear,
        operators: Operators = PLAIN,
    ) -> None:
        self._top_k = config.top_k
        self._router = Router(config, weights, make_linear)
        self._experts = [
            FeedForward(expert, within(make_linear, f"experts.{index}"), operators)
            for index, expert in enumerate(weights.experts)
        ]
        shared = weights.shared
        to_shared = within(make_linear, "shared")
        self._shared = FeedForward(shared, to_shared, operators) if shared else None

    def __call__(self, x: Tensor) -> Tensor:
        """Map [rows, hidden size] to the same shape."""
        chosen, weights = self._router(x)
        by_expert, order = chosen.flatten().sort(stable=True)
        outputs = self._compute(by_expert, x.index_select(0, order // self._top_k))
        placed = torch.empty_like(outputs).index_copy_(0, order, outputs)
        mixed = (placed.view(*chosen.shape, -1) * weights.unsqueeze(-1)).sum(1)
        return mixed if self._shared is None else mixed + self._shared(x)

    def _compute(self, by_expert: Tensor, inputs: Tensor) -> Tensor:
        """Run each expert on its rows of ``inputs``, which are sorted by expert."""
        counts = by_expert.bincount(minlength=len(self._experts)).tolist()
        parts = inputs.split_with_sizes(counts)
        return torch.cat(
            [
                expert(rows)
                for expert, rows in zip(self._experts, parts, strict=True)
                if rows.shape[0]
            ]
        )
