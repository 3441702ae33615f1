"""A mixture of experts: rows sorted by expert, one product for each expert that is used."""

from functools import partial

import torch
from torch import Tensor

from servetwin.engine.models.linear import MakeLinear, biased
from servetwin.engine.models.model_config import Activation, ExpertConfig
from servetwin.engine.models.operators import ACTIVATIONS, PLAIN, Operators, gated, limited_gate
from servetwin.engine.models.tensor_layout import CHOICE_BIAS
from servetwin.engine.models.weights import LayerWeights


class FeedForward:
    """``down(act(gate(x)) * up(x))``, with gate and up as one product; without a gate
    ``down(act(up(x)))``.

    Its weights are those of a layer whose names begin with ``prefix``.
    """

    def __init__(
        self,
        weights: LayerWeights,
        make_linear: MakeLinear,
        operators: Operators = PLAIN,
        prefix: str = "",
        activation: Activation = "silu",
        gate_limit: float | None = None,
    ) -> None:
        has_gate = f"{prefix}gate_up" in weights
        self._gated = ACTIVATIONS[activation]
        if gate_limit is not None:
            self._gated = partial(limited_gate, limit=gate_limit)
        elif has_gate:
            plain = activation == "silu"
            self._gated = operators.swiglu if plain else partial(gated, self._gated)
        inside = f"{prefix}{'gate_up' if has_gate else 'up'}"
        self._gate_up, self._down = (
            biased(make_linear(name, weights[name]), weights.get(f"{name}_bias"))
            for name in (inside, f"{prefix}down")
        )

    def __call__(self, x: Tensor) -> Tensor:
        """Map [rows, hidden size] to the same shape."""
        return self._down(self._gated(self._gate_up(x)))


class Router:
    """Scores all experts of a layer and takes the best ones."""

    def __init__(
        self, config: ExpertConfig, weights: LayerWeights, make_linear: MakeLinear
    ) -> None:
        self._config = config
        scores = make_linear("router", weights["router"])
        self._scores = biased(scores, weights.get("router_bias"))
        self._choice_bias = weights.get(CHOICE_BIAS)

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
        groups = best.topk(self._config.top_groups, dim=-1).indices
        hidden = torch.ones_like(best, dtype=torch.bool).scatter_(1, groups, False)
        return grouped.masked_fill(hidden.unsqueeze(-1), -torch.inf).flatten(1)


class Experts:
    """Each row's weighted sum of its experts, and of the network that all rows share.

    The host waits for the number of rows of each expert (on CUDA once a layer). A row's experts
    are added in the order of its choice, so its sum does not depend on the batch.
    """

    def __init__(
        self,
        config: ExpertConfig,
        weights: LayerWeights,
        make_linear: MakeLinear,
        operators: Operators = PLAIN,
        activation: Activation = "silu",
    ) -> None:
        self._top_k, self._scales_inputs = config.top_k, config.scales_inputs
        self._router = Router(config, weights, make_linear)
        networks = [f"experts.{index}." for index in range(config.experts)]
        limit = config.gate_limit
        self._experts = [
            FeedForward(weights, make_linear, operators, name, activation, gate_limit=limit)
            for name in networks
        ]
        self._shared: FeedForward | None = None
        if config.shared_size:
            self._shared = FeedForward(weights, make_linear, operators, "shared.", activation)
        self._shared_gate = (
            make_linear("shared_gate", weights["shared_gate"]) if config.shared_gate else None
        )

    def __call__(self, x: Tensor) -> Tensor:
        """Map [rows, hidden size] to the same shape."""
        chosen, weights = self._router(x)
        by_expert, order = chosen.flatten().sort(stable=True)
        inputs = x.index_select(0, order // self._top_k)
        if self._scales_inputs:
            inputs = inputs * weights.flatten()[order].unsqueeze(1)
            weights = torch.ones_like(weights)
        outputs = self._compute(by_expert, inputs)
        placed = torch.empty_like(outputs).index_copy_(0, order, outputs)
        mixed = (placed.view(*chosen.shape, -1) * weights.unsqueeze(-1)).sum(1)
        if self._shared is None:
            return mixed
        shared = self._shared(x)
        if self._shared_gate is not None:
            shared = self._shared_gate(x).sigmoid() * shared
        return mixed + shared

    def _compute(self, by_expert: Tensor, inputs: Tensor) -> Tensor:
        """Run each expert on its rows of ``inputs``, which are sorted by expert."""
        counts = by_expert.bincount(minlength=len(self._experts)).tolist()
        parts = inputs.split_with_sizes(counts)
        pairs = zip(self._experts, parts, strict=True)
        return torch.cat([expert(rows) for expert, rows in pairs if rows.shape[0]])
