"""A model shape from a Hugging Face ``config.json``.

A model of no known family is read by its keys alone, and its ``source`` says so.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from servetwin.sim.catalogue.entry import first_problem
from servetwin.sim.catalogue.hf_hybrids import (
    attention,
    compressed_latent,
    recurrent_layers,
    searched_blocks,
)
from servetwin.sim.catalogue.hf_quantisation import quantisation_of
from servetwin.sim.catalogue.layers import Dense, Experts, FeedForward, LatentAttention, Mixer
from servetwin.sim.catalogue.model import LayerGroup, ModelShape
from servetwin.workloads.errors import ShapeError
from servetwin.workloads.models.description import (
    APPROXIMATIONS,
    FAMILIES,
    NAMES,
    Description,
)
from servetwin.workloads.models.keys import Keys

# Context of models whose config names none: that of the models before 2023.
UNSTATED_LIMIT_TOKENS = 2048


_NO_FFN = Dense(width=0, matrices=0)


def model_from_hf_config(config: Mapping[str, Any], name: str, where: str = "") -> ModelShape:
    """Return the shape of the model that a ``config.json`` describes.

    Errors call the config ``where``. Norms, biases, vision and audio parts, and modules for
    multi-token prediction are left out. Raises ``ShapeError`` naming the key that is missing or
    impossible.
    """
    model = Description.of(Keys(config, where or name))
    if model.keys.flag("is_encoder_decoder"):
        raise ShapeError(
            f"{model.keys.where}: an encoder-decoder model; only decoders have a shape here"
        )
    try:
        return _shape(model, name)
    except ValidationError as error:
        raise ShapeError(f"{model.keys.where}: {first_problem(error)}") from None


def _shape(model: Description, name: str) -> ModelShape:
    groups, more_positions = _groups(model), model.family.more_positions
    context = model.keys.find(*NAMES["context"]) or UNSTATED_LIMIT_TOKENS
    layers = sum(group.count for group in groups)
    return ModelShape(
        name=name,
        width=model.width,
        vocabulary=model.keys.count("vocab_size"),
        layers=groups,
        tied_embeddings=model.keys.flag("tie_word_embeddings"),
        positions=0 if more_positions is None else context + more_positions,
        max_model_len=context,
        source=_source(model.model_type),
        quantisation=quantisation_of(model.keys, layers),
    )


def _groups(model: Description) -> tuple[LayerGroup, ...]:
    """Return groups of equal layers, in the order of their first layers."""
    if model.model_type == "nemotron-nas":
        return _grouped(searched_blocks(model.keys, model.width, model.family.matrices))
    recurrent, blocks = recurrent_layers(model), model.blocks()
    mixers = [
        recurrent.get(layer) or _mixer(model, window, layer)
        for layer, window in enumerate(model.windows())
    ]
    return _grouped(
        (mixer, _NO_FFN if blocks and not blocks[layer][1] else _ffn(model, layer))
        for layer, mixer in enumerate(mixers)
    )


def _source(model_type: str) -> str:
    known = "" if model_type in FAMILIES else ", not known here: read as Llama-like by its keys"
    approximated = f"; {APPROXIMATIONS[model_type]}" if model_type in APPROXIMATIONS else ""
    return f"Hugging Face config.json, model type {model_type or 'unstated'}{known}{approximated}"


def _grouped(layers: Iterable[tuple[Mixer, FeedForward]]) -> tuple[LayerGroup, ...]:
    kinds = Counter(layers)
    return tuple(LayerGroup(count=n, mixer=mixer, ffn=ffn) for (mixer, ffn), n in kinds.items())


def _mixer(model: Description, window: int | None, layer: int) -> Mixer:
    if latent := model.latent():
        return LatentAttention(heads=model.heads, **latent._asdict())
    if model.keys.values.get("compress_ratios"):
        return compressed_latent(model.keys, model.heads, layer)
    return attention(model.keys, model.heads, model.head_dim, model.kv_heads, window)


def _ffn(model: Description, layer: int) -> FeedForward:
    keys, matrices = model.keys, model.family.matrices
    if not model.has_experts(layer):
        return Dense(width=model.dense_width, matrices=matrices)
    sizes = model.experts()
    shared = sizes.shared_width
    if keys.flag("enable_moe_block"):
        shared += model.ffn_width
    width = sizes.width
    if latent := keys.find("moe_latent_size", "routed_expert_hidden_size"):
        width = width * latent // model.width
        shared += 2 * latent // matrices
    return Experts(
        experts=sizes.experts, top_k=sizes.top_k, width=width, matrices=matrices,
        shared_width=shared,
    )  # fmt: skip
