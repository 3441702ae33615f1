"""A model shape from a Hugging Face ``config.json``.

Most configs say everything by their keys, under names that hardly differ; ``Family`` has the rest.
A model of no known family is read by its keys alone, and its ``source`` says so.
"""

from collections import Counter
from collections.abc import Mapping
from math import ceil
from typing import Any

from pydantic import ValidationError

from servetwin.sim.catalogue.entry import first_problem
from servetwin.sim.catalogue.hf_keys import FAMILIES, NAMES, NESTED_DEFAULTS, PLAIN, Family, Keys
from servetwin.sim.catalogue.layers import (
    Attention,
    Dense,
    Experts,
    FeedForward,
    LatentAttention,
    Mixer,
    Recurrence,
)
from servetwin.sim.catalogue.model import LayerGroup, ModelShape
from servetwin.workloads.errors import ShapeError

NO_LIMIT_TOKENS = 2**20
"""Context of a recurrent model, which has no limit of its own."""
UNSTATED_LIMIT_TOKENS = 2048
"""Context of other models whose config names none: that of the models before 2023."""


_MAX_LAYERS = 10_000
_RECURRENT = frozenset({"mamba", "falcon_mamba", "mamba2"})
_NO_FFN = Dense(width=0, matrices=0)
_LOCAL = {"full_attention": False, "sliding_attention": True, "chunked_attention": True}


def model_from_hf_config(config: Mapping[str, Any], name: str, where: str = "") -> ModelShape:
    """Return the shape of the model that a ``config.json`` describes.

    Errors call the config ``where``. Norms, biases, vision and audio parts, and modules for
    multi-token prediction are left out. Raises ``ShapeError`` naming the key that is missing or
    impossible.
    """
    keys = _text_part(Keys(config, where or name))
    model_type = _model_type(keys)
    if keys.flag("is_encoder_decoder", False):
        raise ShapeError(f"{keys.where}: an encoder-decoder model; only decoders have a shape here")
    try:
        return _shape(keys, model_type, name)
    except ValidationError as error:
        raise ShapeError(f"{keys.where}: {first_problem(error)}") from None


def _shape(keys: Keys, model_type: str, name: str) -> ModelShape:
    family = FAMILIES.get(model_type) or _by_its_keys(keys)
    recurrent = model_type in _RECURRENT
    width = keys.count(*NAMES["width"])
    layers = keys.count(*NAMES["layers"], most=_MAX_LAYERS)
    unstated = NO_LIMIT_TOKENS if recurrent else UNSTATED_LIMIT_TOKENS
    context = keys.find(*NAMES["context"]) or unstated
    return ModelShape(
        name=name,
        width=width,
        vocabulary=keys.count("vocab_size"),
        layers=(
            (_recurrent_layers(keys, model_type, width, layers),)
            if recurrent
            else _layers(keys, family, width, layers)
        ),
        tied_embeddings=keys.flag("tie_word_embeddings", family.tied),
        positions=0 if family.more_positions is None else context + family.more_positions,
        max_model_len=context,
        source=_source(model_type),
    )


def _source(model_type: str) -> str:
    known = "" if model_type in FAMILIES else ", not known here: read as Llama-like by its keys"
    return f"Hugging Face config.json, model type {model_type or 'unstated'}{known}"


def _text_part(keys: Keys) -> Keys:
    """Return the keys of the text model inside a multimodal one, missing ones filled in."""
    for name in ("text_config", "llm_config", "language_config"):
        inner = keys.values.get(name)
        if isinstance(inner, Mapping):
            text = Keys(inner, f"{keys.where}: {name}")
            left_out = dict(NESTED_DEFAULTS.get(_model_type(text), {}))
            if (tied := keys.values.get("tie_word_embeddings")) is not None:
                left_out["tie_word_embeddings"] = tied
            return Keys({**left_out, **inner}, text.where)
    return keys


def _model_type(keys: Keys) -> str:
    """Return the type by ``model_type``, or else by the class in ``architectures``."""
    if stated := keys.text("model_type"):
        return stated.removesuffix("_text")
    classes = keys.items("architectures", str)
    named = classes[0].removesuffix("ForCausalLM").removesuffix("LMHeadModel") if classes else ""
    by_class = {family.replace("_", ""): family for family in FAMILIES}
    return by_class.get(named.lower(), named)


def _by_its_keys(keys: Keys) -> Family:
    """Return the family of an unknown model: plain where its activation is one of plain FFNs."""
    activation = keys.text("hidden_act") or keys.text("activation_function")
    return PLAIN if activation.startswith(("gelu", "relu")) else Family()


def _layers(keys: Keys, family: Family, width: int, layers: int) -> tuple[LayerGroup, ...]:
    """Return groups of equal layers, in the order of their first layers."""
    windows = _windows(keys, family, layers)
    kinds = Counter((windows[layer], _has_experts(keys, layer)) for layer in range(layers))
    return tuple(
        LayerGroup(count=count, mixer=_mixer(keys, width, window), ffn=_ffn(keys, family, experts))
        for (window, experts), count in kinds.items()
    )


def _windows(keys: Keys, family: Family, layers: int) -> list[int | None]:
    """Return the window of each layer in tokens; None where it sees all."""
    local = _local_layers(keys, family, layers)
    window = keys.find(*NAMES["window"], least=0)
    if not (window and keys.flag("use_sliding_window", family.windowed)):
        return [None] * layers
    return [window if is_local else None for is_local in local]


def _local_layers(keys: Keys, family: Family, layers: int) -> list[bool]:
    """Return for each layer whether it has the window, if there is one."""
    kinds = keys.items("layer_types", str)
    if kinds:
        if len(kinds) != layers or not set(kinds) <= _LOCAL.keys():
            raise keys.wrong("layer_types", f"{layers} of {', '.join(_LOCAL)}")
        return [_LOCAL[kind] for kind in kinds]
    every = keys.find(*NAMES["pattern"]) or family.full_every
    if every:
        return [(layer + 1) % every != 0 for layer in range(layers)]
    first = keys.find("max_window_layers", least=0) or 0
    return [layer >= first for layer in range(layers)]


def _mixer(keys: Keys, width: int, window: int | None) -> Mixer:
    heads = keys.count(*NAMES["heads"])
    if keys.find("kv_lora_rank") is not None:
        return _latent(keys, heads)
    return Attention(
        heads=heads,
        kv_heads=_kv_heads(keys, heads),
        head_dim=keys.find("head_dim") or _divided(keys, width, NAMES["heads"]),
        window_tokens=window,
    )


def _latent(keys: Keys, heads: int) -> LatentAttention:
    return LatentAttention(
        heads=heads,
        latent_dim=keys.count("kv_lora_rank"),
        rope_dim=keys.count("qk_rope_head_dim", least=0),
        nope_dim=keys.count("qk_nope_head_dim"),
        value_dim=keys.count("v_head_dim"),
        query_latent_dim=keys.find("q_lora_rank"),
    )


def _kv_heads(keys: Keys, heads: int) -> int:
    """Return the KV heads: one for multi-query, which Falcon's newer decoder overrules."""
    if keys.flag("multi_query", False) and not keys.flag("new_decoder_architecture", False):
        return 1
    if keys.find(*NAMES["kv_heads"]) is None:
        return heads
    _divided(keys, heads, NAMES["kv_heads"])
    return keys.count(*NAMES["kv_heads"])


def _divided(keys: Keys, whole: int, names: list[str]) -> int:
    """Return ``whole`` over a count that must divide it."""
    if whole % keys.count(*names):
        raise keys.wrong(keys.name_of(*names), f"a divisor of {whole}")
    return whole // keys.count(*names)


def _has_experts(keys: Keys, layer: int) -> bool:
    every = keys.find("decoder_sparse_step", "interleave_moe_layer_step") or 1
    return (
        bool(keys.find(*NAMES["experts"], least=0))
        and layer >= (keys.find("first_k_dense_replace", least=0) or 0)
        and layer not in keys.items("mlp_only_layers", int)
        and (layer + 1) % every == 0
        and layer % (keys.find("moe_layer_freq") or 1) == 0
    )


def _ffn(keys: Keys, family: Family, experts: bool) -> FeedForward:
    if not experts:
        width = keys.find("intermediate_size_mlp") or _ffn_width(keys, family)
        return Dense(width=width, matrices=family.matrices)
    width = keys.find("moe_intermediate_size") or _ffn_width(keys, family)
    shared = keys.find("shared_expert_intermediate_size", least=0)
    if shared is None:
        shared = width * (keys.find(*NAMES["shared"], least=0) or family.shared_experts)
    return Experts(
        experts=keys.count(*NAMES["experts"]),
        top_k=keys.count(*NAMES["top_k"]),
        width=width,
        matrices=family.matrices,
        shared_width=shared,
    )


def _ffn_width(keys: Keys, family: Family) -> int:
    """Return the width of an FFN; of a plain one, by default four times that of the model."""
    if family.matrices == 2:
        return keys.find(*NAMES["ffn"]) or 4 * keys.count(*NAMES["width"])
    return keys.count(*NAMES["ffn"])


def _recurrent_layers(keys: Keys, model_type: str, width: int, layers: int) -> LayerGroup:
    """Return the layers of Mamba and Mamba-2 models, which are alike and have no FFN."""
    mixer = _mamba2(keys, width) if model_type == "mamba2" else _mamba(keys, width)
    return LayerGroup(count=layers, mixer=mixer, ffn=_NO_FFN)


def _mamba(keys: Keys, width: int) -> Recurrence:
    """Count the projections in, x, dt and out, the convolution, A and D. Gu and Dao 2023."""
    inner, state, kernel = _inner(keys, width), keys.count("state_size"), keys.count("conv_kernel")
    automatic = keys.values.get("time_step_rank") == "auto"
    rank = ceil(width / 16) if automatic else keys.count("time_step_rank")
    per_channel = 2 * width + kernel + (rank + 2 * state) + rank + state + 1 + width
    return Recurrence(state_size=inner * state, mixer_params=inner * per_channel)


def _mamba2(keys: Keys, width: int) -> Recurrence:
    """Count the projections in and out, the convolution, A and D per head. Dao and Gu 2024."""
    inner, state, kernel = _inner(keys, width), keys.count("state_size"), keys.count("conv_kernel")
    heads = keys.count("num_heads")
    convolved = inner + 2 * keys.count("n_groups") * state
    projected = inner + convolved + heads
    params = width * projected + convolved * kernel + 2 * heads + inner * width
    return Recurrence(state_size=inner * state, mixer_params=params)


def _inner(keys: Keys, width: int) -> int:
    return keys.find("intermediate_size", "d_inner") or width * keys.count("expand")
