"""A model shape from a Hugging Face ``config.json``.

Most configs say everything by their keys, under names that hardly differ; ``Family`` has the rest.
A model of no known family is read by its keys alone, and its ``source`` says so.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from servetwin.sim.catalogue.entry import first_problem
from servetwin.sim.catalogue.hf_hybrids import (
    APPROXIMATIONS,
    attention,
    blocks,
    compressed_latent,
    mamba,
    mamba2,
    recurrent_layers,
    searched_blocks,
)
from servetwin.sim.catalogue.hf_keys import FAMILIES, NAMES, NESTED_DEFAULTS, PLAIN, Family, Keys
from servetwin.sim.catalogue.hf_quantisation import quantisation_of
from servetwin.sim.catalogue.layers import Dense, Experts, FeedForward, LatentAttention, Mixer
from servetwin.sim.catalogue.model import LayerGroup, ModelShape
from servetwin.workloads.errors import ShapeError
from servetwin.workloads.program.package import shipped_json

NO_LIMIT_TOKENS = 2**20
"""Context of a recurrent model, which has no limit of its own."""
UNSTATED_LIMIT_TOKENS = 2048
"""Context of other models whose config names none: that of the models before 2023."""


_MAX_LAYERS = 10_000
_RECURRENT = frozenset({"mamba", "falcon_mamba", "mamba2"})
_NO_FFN = Dense(width=0, matrices=0)
_LOCAL: dict[str, bool] = shipped_json("sim/catalogue/hf_families.json")["layers_with_window"]


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
    width = keys.count(*NAMES["width"])
    groups = _groups(keys, family, model_type, width)
    unstated = NO_LIMIT_TOKENS if model_type in _RECURRENT else UNSTATED_LIMIT_TOKENS
    context = keys.find(*NAMES["context"]) or unstated
    return ModelShape(
        name=name,
        width=width,
        vocabulary=keys.count("vocab_size"),
        layers=groups,
        tied_embeddings=keys.flag("tie_word_embeddings", family.tied),
        positions=0 if family.more_positions is None else context + family.more_positions,
        max_model_len=context,
        source=_source(model_type),
        quantisation=quantisation_of(keys.values, keys.where, sum(g.count for g in groups)),
    )


def _groups(keys: Keys, family: Family, model_type: str, width: int) -> tuple[LayerGroup, ...]:
    """Return the layers of a model, equal ones together."""
    if model_type == "nemotron-nas":
        return _grouped(searched_blocks(keys, width, family.matrices))
    if model_type == "nemotron_h" and (pairs := blocks(keys)):
        return _paired(keys, family, width, pairs)
    layers = keys.count(*NAMES["layers"], most=_MAX_LAYERS)
    if model_type not in _RECURRENT:
        return _layers(keys, family, width, layers)
    mixer = mamba2(keys, width) if model_type == "mamba2" else mamba(keys, width)
    return (LayerGroup(count=layers, mixer=mixer, ffn=_NO_FFN),)


def _source(model_type: str) -> str:
    known = "" if model_type in FAMILIES else ", not known here: read as Llama-like by its keys"
    approximated = f"; {APPROXIMATIONS[model_type]}" if model_type in APPROXIMATIONS else ""
    return f"Hugging Face config.json, model type {model_type or 'unstated'}{known}{approximated}"


def _text_part(keys: Keys) -> Keys:
    """Return the keys of the text model inside a multimodal one, missing ones filled in."""
    for name in ("text_config", "llm_config", "language_config"):
        inner = keys.values.get(name)
        if isinstance(inner, Mapping):
            text = Keys(inner, f"{keys.where}: {name}")
            left_out = dict(NESTED_DEFAULTS.get(_model_type(text), {}))
            for outer in ("tie_word_embeddings", "quantization_config", "quantization"):
                if keys.values.get(outer) is not None:
                    left_out[outer] = keys.values[outer]
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
    windows, recurrent = _windows(keys, family, layers), recurrent_layers(keys, width, layers)
    mixers = [
        recurrent.get(layer) or _mixer(keys, width, window, layer)
        for layer, window in enumerate(windows)
    ]
    return _grouped(
        (mixer, _ffn(keys, family, _has_experts(keys, layer))) for layer, mixer in enumerate(mixers)
    )


def _paired(
    keys: Keys, family: Family, width: int, pairs: list[tuple[str, str]]
) -> tuple[LayerGroup, ...]:
    """Return the layers of Nemotron-H: a mixer, and the FFN behind it where one follows."""
    of = {"mamba": mamba2(keys, width), "attention": _mixer(keys, width, None, 0)}
    ffns = {kind: _ffn(keys, family, kind == "moe") for _, kind in pairs if kind}
    return _grouped((of[mixer], ffns.get(ffn, _NO_FFN)) for mixer, ffn in pairs)


def _grouped(layers: Iterable[tuple[Mixer, FeedForward]]) -> tuple[LayerGroup, ...]:
    kinds = Counter(layers)
    return tuple(LayerGroup(count=n, mixer=mixer, ffn=ffn) for (mixer, ffn), n in kinds.items())


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
    pattern = keys.items("hybrid_layer_pattern", int)
    if len(pattern) == layers:
        return [kind == 1 for kind in pattern]
    every = keys.find(*NAMES["pattern"]) or family.full_every
    if every:
        return [(layer + 1) % every != 0 for layer in range(layers)]
    first = keys.find("max_window_layers", least=0) or 0
    return [layer >= first for layer in range(layers)]


def _mixer(keys: Keys, width: int, window: int | None, layer: int) -> Mixer:
    heads = keys.count(*NAMES["heads"])
    if keys.find("kv_lora_rank") is not None:
        return _latent(keys, heads)
    if keys.values.get("compress_ratios"):
        return compressed_latent(keys, heads, layer)
    head_dim = keys.find("head_dim", "attention_head_dim") or _divided(keys, width, NAMES["heads"])
    return attention(keys, heads, head_dim, _kv_heads(keys, heads), window)


def _latent(keys: Keys, heads: int) -> LatentAttention:
    return LatentAttention(
        heads=heads, latent_dim=keys.count("kv_lora_rank"),
        rope_dim=keys.count("qk_rope_head_dim", least=0), nope_dim=keys.count("qk_nope_head_dim"),
        value_dim=keys.count("v_head_dim"), query_latent_dim=keys.find("q_lora_rank"),
    )  # fmt: skip


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
    marks = keys.values.get("moe_layer_freq")
    if isinstance(marks, list) and layer < len(marks):
        return bool(marks[layer])
    return (
        bool(keys.find(*NAMES["experts"], least=0))
        and layer >= (keys.find("first_k_dense_replace", least=0) or 0)
        and layer not in keys.items("mlp_only_layers", int)
        and (layer + 1) % every == 0
        and layer % (keys.find("moe_layer_freq") or 1) == 0
    )


def _ffn(keys: Keys, family: Family, experts: bool) -> FeedForward:
    if not experts:
        width = keys.find(*NAMES["dense"]) or _ffn_width(keys, family)
        return Dense(width=width, matrices=family.matrices)
    width = keys.find("moe_intermediate_size") or _ffn_width(keys, family)
    shared = keys.find(*NAMES["shared_width"], least=0)
    if shared is None:
        shared = width * (keys.find(*NAMES["shared"], least=0) or family.shared_experts)
    if keys.flag("enable_moe_block", False):
        shared += _ffn_width(keys, family)
    if latent := keys.find("moe_latent_size", "routed_expert_hidden_size"):
        width = width * latent // keys.count(*NAMES["width"])
        shared += 2 * latent // family.matrices
    return Experts(
        experts=keys.count(*NAMES["experts"]), top_k=keys.count(*NAMES["top_k"]), width=width,
        matrices=family.matrices, shared_width=shared,
    )  # fmt: skip


def _ffn_width(keys: Keys, family: Family) -> int:
    """Return the width of an FFN; of a plain one, by default four times that of the model."""
    if family.matrices == 2:
        return keys.find(*NAMES["ffn"]) or 4 * keys.count(*NAMES["width"])
    return keys.count(*NAMES["ffn"])
