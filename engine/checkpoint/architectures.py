"""From a ``config.json`` to the model that the engine computes, by architecture.

What sets an architecture apart is data: ``architectures.json``. There, ``neutral`` are keys with
the values that change nothing (null: any), and ``defaults`` the values of keys that are absent.
``flags`` are keys that set fields of the model, ``fields`` are always set, ``numbers`` are fields
that are a power of a key, ``norms`` those of ``Norms``. ``windows`` says which layers may have one,
``thetas`` which turn otherwise, and ``experts`` which keys describe them.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from servetwin.engine.checkpoint.json_file import KNOWN_KEYS, JsonObject, shortened, shown
from servetwin.engine.checkpoint.rope_parameters import rope_scaling, rope_theta
from servetwin.engine.models.model_config import ExpertConfig, LatentConfig, ModelConfig, Norms
from servetwin.workloads.errors import EngineError
from servetwin.workloads.program.package import shipped_json

ARCHITECTURES: dict[str, dict[str, Any]] = shipped_json("engine/checkpoint/architectures.json")
CONFIG_FILE = "config.json"
_ENDING = "ForCausalLM"
_MOST_LAYERS = 10_000
_MOST_EXPERTS = 4_096
"""The names of their tensors are listed before any is looked for."""


def read_model_config(folder: Path) -> ModelConfig:
    """Return the model of a folder's ``config.json``; it is called as the folder is.

    Raises ``EngineError`` with the file and the key for what the engine cannot compute.
    """
    config = JsonObject.read(folder / CONFIG_FILE)
    architecture = _architecture(config)
    config = config.with_defaults(architecture.get("defaults", {}))
    known = {key for key, _ in architecture.get("numbers", {}).values()}
    neutral = KNOWN_KEYS["every architecture"] | architecture["neutral"]
    config.require_neutral(
        {key: values for key, values in neutral.items() if key not in known and values is not None}
    )
    try:
        basis = _basis(config, architecture, folder.resolve().name)
        return _model(config, architecture, basis)
    except EngineError as error:
        place = "" if str(error).startswith(config.place) else f"{config.place}: "
        raise EngineError(f"{place}{error}") from None


def _architecture(config: JsonObject) -> Mapping[str, Any]:
    named = config.get("architectures")
    if isinstance(named, list) and len(named) == 1 and str(named[0]) in ARCHITECTURES:
        return ARCHITECTURES[str(named[0])]
    by_type = {name.removesuffix(_ENDING).lower(): name for name in ARCHITECTURES}
    model_type = str(config.get("model_type", "")).replace("_", "")
    if named is None and model_type in by_type:
        return ARCHITECTURES[by_type[model_type]]
    given = ", ".join(map(str, named)) if isinstance(named, list) else config.get("model_type")
    known = ", ".join(name.removesuffix(_ENDING) for name in ARCHITECTURES)
    raise config.error(
        "architectures", f"{shortened(str(given))} is not supported: {_ENDING} of {known} is"
    )


def _basis(config: JsonObject, architecture: Mapping[str, Any], name: str) -> ModelConfig:
    """Return what all architectures have in common."""
    heads, hidden_size = config.size("num_attention_heads"), config.size("hidden_size")
    partial = "rotary_share" in architecture.get("numbers", {})
    scaling, longest = rope_scaling(config, partial), config.size("max_position_embeddings")
    if scaling is not None and scaling.kind == "yarn":
        longest = max(longest, round(scaling.factor * scaling.original_max_len))
    return ModelConfig(
        name=name,
        hidden_size=hidden_size,
        layers=config.size("num_hidden_layers", most=_MOST_LAYERS),
        heads=heads,
        kv_heads=config.size("num_key_value_heads", heads),
        head_dim=_head_dim(config, hidden_size, heads),
        ffn_size=config.size("intermediate_size"),
        vocab_size=config.size("vocab_size"),
        rope_theta=rope_theta(config),
        rope_scaling=scaling,
        norm_eps=config.number(architecture.get("norm_eps", "rms_norm_eps")),
        tie_embeddings=config.flag("tie_word_embeddings"),
        max_model_len=longest,
    )


def _head_dim(config: JsonObject, hidden_size: int, heads: int) -> int:
    if config.get("head_dim") is not None:
        return config.size("head_dim")
    if hidden_size % heads:
        raise config.error("head_dim", f"is missing, and {hidden_size} / {heads} is not whole")
    return hidden_size // heads


def _model(config: JsonObject, architecture: Mapping[str, Any], basis: ModelConfig) -> ModelConfig:
    """Return the model with what sets its architecture apart."""
    for key in architecture.get("required", ()):
        config.size(key)
    changes: dict[str, Any] = dict(architecture.get("fields", {}))
    changes["fused"] = tuple(architecture.get("fused", ()))
    for key, fields in architecture.get("flags", {}).items():
        changes |= dict.fromkeys(fields, config.flag(key))
    rope = config.part("rope_parameters") or config
    for field, (key, power) in architecture.get("numbers", {}).items():
        changes[field] = (config if rope.get(key) is None else rope).number(key) ** power
    if "norms" in architecture:
        changes["norms"] = Norms(**architecture["norms"])
    windows = _windows(config, basis, architecture.get("windows", "none"))
    changes["layer_thetas"] = _thetas(config, basis, windows, architecture.get("thetas", "one"))
    model = replace(_with_windows(basis, windows), **changes)
    if architecture.get("latent"):
        model = _with_latent(config, model)
    experts = architecture.get("experts")
    return replace(model, experts=_experts(config, model, experts)) if experts else model


def _windows(config: JsonObject, model: ModelConfig, layers: str) -> list[int | None]:
    """Return the window of each layer, where ``layers`` may have one."""
    if layers == "by pattern":
        every = config.size("sliding_window_pattern")
        types = [
            "full_attention" if (i + 1) % every == 0 else "sliding_attention"
            for i in range(model.layers)
        ]
        named = config.with_defaults({"layer_types": types})
        return _chosen_windows(named, model, config.size("sliding_window"))
    narrow = config.get("sliding_window") is not None and layers == "every layer"
    if layers == "chosen layers" and config.flag("use_sliding_window"):
        return _chosen_windows(config, model, config.size("sliding_window"))
    allowed = "sliding_attention" if narrow else "full_attention"
    _check_layer_types(config, model, allowed=allowed)
    return [config.size("sliding_window") if narrow else None] * model.layers


def _chosen_windows(config: JsonObject, model: ModelConfig, window: int) -> list[int | None]:
    """Return the windows of ``layer_types``, or of the layers from ``max_window_layers`` on."""
    types = _check_layer_types(config, model, allowed="full_attention or sliding_attention")
    if types:
        return [window if kind == "sliding_attention" else None for kind in types]
    first = _layer_count(config, "max_window_layers", 28)
    return [window if layer >= first else None for layer in range(model.layers)]


def _thetas(
    config: JsonObject, model: ModelConfig, windows: list[int | None], layers: str
) -> tuple[float | None, ...]:
    """Return ``rope_theta`` of each layer (None: none turns); empty where all are alike."""
    if layers == "local in windows":
        local = rope_theta(config, "rope_local_base_freq", "sliding_attention")
        return tuple(model.rope_theta if window is None else local for window in windows)
    if layers == "in windows":
        return tuple(None if window is None else model.rope_theta for window in windows)
    if layers == "chosen layers":
        every = config.size("no_rope_layer_interval")
        chosen = config.get("no_rope_layers") or [
            int((i + 1) % every > 0) for i in range(model.layers)
        ]
        if not isinstance(chosen, list) or len(chosen) != model.layers or set(chosen) - {0, 1}:
            raise config.error("no_rope_layers", f"must be a list of {model.layers} zeros and ones")
        return tuple(model.rope_theta if turns else None for turns in chosen)
    return ()


def _with_windows(model: ModelConfig, windows: list[int | None]) -> ModelConfig:
    """Return the model with windows, but for those that no context fills."""
    narrow = [w if w is not None and w < model.max_model_len else None for w in windows]
    return replace(model, windows=tuple(narrow) if any(narrow) else ())


def _check_layer_types(config: JsonObject, model: ModelConfig, allowed: str) -> list[str]:
    """Return ``layer_types``, empty where it is absent. Raises ``EngineError`` for an unknown
    one.
    """
    types: Any = config.get("layer_types", [])
    if not isinstance(types, list) or len(types) not in (0, model.layers):
        raise config.error("layer_types", f"must be a list of {model.layers}")
    for kind in types:
        if kind not in allowed.split(" or "):
            raise config.error("layer_types", f"{shown(kind)} is not supported: use {allowed}")
    return list(types)


def _layer_count(config: JsonObject, key: str, default: int) -> int:
    count = config.get(key, default)
    if type(count) is not int or count < 0:
        raise config.error(key, f"must be a number of layers (got {shown(count)})")
    return count


def _with_latent(config: JsonObject, model: ModelConfig) -> ModelConfig:
    """Return the model with the latent attention of DeepSeek."""
    rope_dim = config.size("qk_rope_head_dim")
    query_rank = config.size("q_lora_rank") if config.get("q_lora_rank") is not None else None
    latent = LatentConfig(
        config.size("kv_lora_rank"), rope_dim, config.size("v_head_dim"), query_rank
    )
    width = config.size("qk_nope_head_dim") + rope_dim
    return replace(model, kv_heads=1, head_dim=width, latent=latent)


def _experts(
    config: JsonObject, model: ModelConfig, described: Mapping[str, Any]
) -> ExpertConfig | None:
    """Return the experts that the keys of an architecture describe; None if all layers are dense.

    Mixtral and Qwen3 have them in every layer but some, DeepSeek in those after the first ones.
    """
    dense = _dense_layers(config, model, described.get("dense", "none"))
    if len(dense) == model.layers:
        return None
    config.require_neutral(described.get("neutral", {}))
    count = next((key for key in described["count"] if config.get(key) is not None), None)
    width, shared = config.size(described["width"]), described.get("shared", "")
    beside = width * config.size(shared) if config.get(shared) else 0
    if "shared_width" in described:
        beside = config.size(described["shared_width"])
    groups = described.get("groups", "none")
    grouped = groups in ("always", config.get("topk_method"))
    return ExpertConfig(
        config.size(count or described["count"][-1], most=_MOST_EXPERTS),
        config.size("num_experts_per_tok"),
        width,
        shared_size=beside,
        dense_layers=dense,
        normalise=config.flag("norm_topk_prob", described.get("normalise_by_default", True)),
        scale=config.number("routed_scaling_factor", described["scale"])
        if "scale" in described
        else 1.0,
        groups=config.size("n_group", 1) if grouped else 1,
        top_groups=config.size("topk_group", 1) if grouped else 1,
        **described.get("fields", {}),
    )


def _dense_layers(config: JsonObject, model: ModelConfig, dense: str) -> tuple[int, ...]:
    """Return the layers without experts: the first ones, or by a step and a list."""
    layers = range(model.layers)
    if dense == "first":
        return tuple(layers[: _layer_count(config, "first_k_dense_replace", 0)])
    if dense == "none":
        return ()
    step, listed = config.size("decoder_sparse_step", 1), config.get("mlp_only_layers", [])
    if not isinstance(listed, list) or any(type(layer) is not int for layer in listed):
        raise config.error("mlp_only_layers", f"must be a list of layers (got {shown(listed)})")
    return tuple(layer for layer in layers if layer in listed or (layer + 1) % step)
