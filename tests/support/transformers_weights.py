"""The engine's weights under the names of transformers' models."""

from collections.abc import Mapping

import torch
from torch import Tensor

from servetwin.engine.models.model_config import ModelConfig
from servetwin.engine.models.tensor_layout import Order, layer_stacks
from servetwin.engine.models.weights import LayerWeights, Weights


def state_dict(config: ModelConfig, weights: Weights) -> dict[str, Tensor]:
    """The state of the model whose parts ``config`` has."""
    state = {
        "model.embed_tokens.weight": weights.embedding,
        "model.norm.weight": weights.final_norm,
        "lm_head.weight": weights.head,
    }
    layers = list(weights.layers)
    for index in range(config.layers):
        own = index // config.weight_sharing
        parts = _layer(config, index, layers[own])
        if not config.stores(index):  # never used, but the model must have some
            first_index = own - own % config.kv_sharing
            first = _layer(config, first_index, layers[first_index])
            parts = {**first, **parts}
        state |= {f"model.layers.{index}.{name}": part for name, part in parts.items()}
    return state


def _layer(config: ModelConfig, index: int, layer: LayerWeights) -> dict[str, Tensor]:
    place, state = f"model.layers.{index}.", dict[str, Tensor]()
    for name, stack in layer_stacks(config, index).items():
        rows = layer[name].split_with_sizes([part.shape[0] for part in stack])
        for part, own in zip(stack, rows, strict=True):
            turned = _as_stored(own, part.order) if part.order else own
            state[part.name.removeprefix(place)] = turned
    return _with_stacked_experts(layer, state)


def _as_stored(rows: Tensor, order: Order) -> Tensor:
    """Rows in the order that the checkpoint has."""
    groups = rows.view(-1, len(order), *rows.shape[1:])
    stored = torch.empty_like(groups)
    stored[:, list(order)] = groups
    return stored.view_as(rows)


def _with_stacked_experts(layer: LayerWeights, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state with the networks of all experts in one tensor each."""
    kept = {name: tensor for name, tensor in state.items() if ".experts." not in name}
    for ours, theirs in (("gate_up", "gate_up_proj"), ("down", "down_proj")):
        names = [n for n in layer if n.startswith("experts.") and n.endswith(ours)]
        if names:
            kept[f"mlp.experts.{theirs}"] = torch.stack([layer[name] for name in names])
    return kept
