"""From a ``config.json`` to the model that the engine computes, by family.

What sets a family apart is data: ``engine`` in ``families.json`` of ``workloads/models``. There,
``neutral`` are keys with the values that change nothing (null: any). ``flags`` are keys that set
fields of the model, ``fields`` are always set, ``numbers`` are fields that are a power of a key
(under one of its names),
``norms`` those of ``Norms``, and ``names`` what its tensors are called. ``windows`` says which
layers may have one, ``thetas`` which turn otherwise, and ``experts`` how they are chosen. Where the
keys in ``when`` have these values, its other entries replace those of the family.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from servetwin.engine.checkpoint.rope_parameters import KNOWN_KEYS, rope_scaling, rope_theta
from servetwin.engine.models.model_config import (
    ExpertConfig,
    LatentConfig,
    ModelConfig,
    Norms,
    StateSpaceConfig,
)
from servetwin.workloads.errors import EngineError
from servetwin.workloads.models.description import (
    FAMILIES,
    NAMES,
    NOT_COMPUTED,
    Description,
    type_of_class,
)
from servetwin.workloads.models.keys import Keys, shortened

CONFIG_FILE = "config.json"
# ``engine`` of a family.
Computed = Mapping[str, Any]


def read_model_config(folder: Path) -> ModelConfig:
    """Return the model of a folder's ``config.json``; it is called as the folder is.

    Raises ``EngineError`` with the file and the key for what the engine cannot compute.
    """
    config = Keys.read(folder / CONFIG_FILE, EngineError)
    config.require_neutral(KNOWN_KEYS["parts of other kinds"])
    described = Description.of(config)
    computed = _computed(described)
    own = {name for key, _ in computed.get("numbers", {}).values() for name in key.split()}
    neutral = KNOWN_KEYS["every architecture"] | computed.get("neutral", {})
    described.keys.require_neutral(
        {key: values for key, values in neutral.items() if key not in own and values is not None}
    )
    try:
        return _model(described, computed, folder.resolve().name)
    except EngineError as error:
        place = "" if str(error).startswith(config.where) else f"{config.where}: "
        raise EngineError(f"{place}{error}") from None


def _computed(described: Description) -> Computed:
    """Return how the engine computes the family of a model. Raises where it does not."""
    keys, computed = described.keys, described.family.engine
    named = keys.items("architectures", str)
    for name in named:
        if len(named) > 1 or FAMILIES.get(type_of_class(name) or "") != described.family:
            raise keys.failure(
                f"architectures {shortened(', '.join(named))} is not supported with model_type "
                f"{described.model_type}: use the one class ...ForCausalLM of that type"
            )
    if computed is None:
        lacks = (what for what, types in NOT_COMPUTED.items() if described.model_type in types)
        known = ", ".join(name for name, family in FAMILIES.items() if family.engine)
        why = f"the engine lacks {next(lacks, 'it')}; it has {known}"
        raise keys.failure(f"model_type {shortened(described.model_type)} is not supported: {why}")
    for case in computed.get("when", ()):
        if all(keys.get(key) == value for key, value in case["keys"].items()):
            computed = {**computed, **case}
    return computed


def _model(described: Description, computed: Computed, name: str) -> ModelConfig:
    """Return the model: what all families have in common, and what sets this one apart."""
    for key in computed.get("required", ()):
        described.keys.count(key)
    basis = _basis(described, computed, name)
    windows = _windows(described, computed)
    thetas = _thetas(described, basis, windows, computed.get("thetas", "one"))
    narrow = [w if w is not None and w < basis.max_model_len else None for w in windows]
    model = replace(
        basis,
        windows=tuple(narrow) if any(narrow) else (),
        layer_thetas=thetas,
        **_changes(described.keys, computed),
    )
    experts = _experts(described, computed.get("experts", {}))
    return replace(model, experts=experts, state_space=_state_space(described))


def _basis(described: Description, computed: Computed, name: str) -> ModelConfig:
    keys = described.keys
    scaling = rope_scaling(described, "rotary_share" in computed.get("numbers", {}))
    longest = keys.count(*NAMES["context"])
    if scaling is not None and scaling.kind == "yarn":
        longest = max(longest, round(scaling.factor * scaling.original_max_len))
    if scaling is not None and scaling.kind == "longrope":
        longest = scaling.original_max_len
    bounds = [keys.find(key) for key in computed.get("within", ())]
    longest = min(longest, *(bound - 1 for bound in bounds if bound), longest)
    latent = described.latent()
    return ModelConfig(
        name=name,
        hidden_size=described.width,
        layers=described.layers,
        heads=described.heads,
        kv_heads=1 if latent else described.kv_heads,
        head_dim=latent.nope_dim + latent.rope_dim if latent else described.head_dim,
        latent=LatentConfig(*latent[:3], latent.query_latent_dim) if latent else None,
        ffn_size=described.dense_width,
        vocab_size=keys.count("vocab_size"),
        rope_theta=rope_theta(keys, computed.get("rope_theta", "rope_theta")),
        rope_scaling=scaling,
        norm_eps=keys.number(computed.get("norm_eps", "rms_norm_eps")),
        tie_embeddings=keys.flag("tie_word_embeddings"),
        gated=described.family.matrices == 3,
        more_positions=described.family.more_positions,
        blocks=described.mixer_places(),
        max_model_len=longest,
    )


def _changes(keys: Keys, computed: Computed) -> dict[str, Any]:
    """Return the fields that set the family apart."""
    changes: dict[str, Any] = dict(computed.get("fields", {}))
    changes["fused"] = tuple(computed.get("fused", ()))
    changes["names"] = tuple(map(tuple, computed.get("names", ())))
    for key, fields in computed.get("flags", {}).items():
        changes |= dict.fromkeys(fields, keys.flag(key))
    rope = keys.part("rope_parameters") or keys
    for field, (key, power) in computed.get("numbers", {}).items():
        for place in (rope, keys):
            if field not in changes and place.get(name := place.name_of(*key.split())) is not None:
                changes[field] = place.number(name) ** power
    if "activation" in computed:
        key, known = computed["activation"]
        keys.require_neutral({key: list(known)})
        changes["activation"] = known[keys.get(key, next(iter(known)))]
    if "norms" in computed:
        changes["norms"] = Norms(**computed["norms"])
    return changes


def _windows(described: Description, computed: Computed) -> list[int | None]:
    """Return the window of each layer. Raises for kinds of layers that the family has not."""
    keys, windows = described.keys, described.windows()
    may = computed.get("windows", "none")
    narrow = may == "every" and keys.get("sliding_window") is not None
    allowed = ["sliding_attention"] if narrow else ["full_attention"]
    allowed += computed.get("layer_types", ())
    if any(described.keeps_state()):
        allowed += ["linear_attention", "mamba", "attention"]
    if may == "chosen":
        allowed.append("sliding_attention")
        if "sliding_attention" in keys.get("layer_types", ()) or keys.get("use_sliding_window"):
            keys.count("sliding_window")
    for kind in keys.items("layer_types", str):
        if kind not in allowed:
            raise keys.failure(
                f"layer_types {shortened(repr(kind))} is not supported: use {' or '.join(allowed)}"
            )
    return windows if may != "none" else [None] * len(windows)


def _thetas(
    described: Description, model: ModelConfig, windows: Sequence[int | None], layers: str
) -> tuple[float | None, ...]:
    """Return ``rope_theta`` of each layer (None: none turns); empty where all are alike."""
    keys = described.keys
    if layers == "local in windows":
        local = rope_theta(keys, "rope_local_base_freq", "sliding_attention")
        return tuple(model.rope_theta if window is None else local for window in windows)
    if layers == "in windows":
        return tuple(None if window is None else model.rope_theta for window in windows)
    if layers == "chosen layers":
        every = keys.count("no_rope_layer_interval")
        chosen = keys.items("no_rope_layers", int)
        chosen = chosen or [int((i + 1) % every > 0) for i in range(model.layers)]
        if len(chosen) != model.layers or set(chosen) - {0, 1}:
            raise keys.wrong("no_rope_layers", f"a list of {model.layers} zeros and ones")
        return tuple(model.rope_theta if turns else None for turns in chosen)
    return ()


def _state_space(described: Description) -> StateSpaceConfig | None:
    """Return the layers that keep a state, and how they do; None where all attend."""
    keys = described.keys
    layers = tuple(layer for layer, keeps in enumerate(described.keeps_state()) if keeps)
    if not layers:
        return None
    convolution = keys.flag(keys.name_of("use_conv_bias", "mamba_conv_bias"), True)
    product = keys.flag(keys.name_of("mamba_proj_bias", "use_bias"))
    return StateSpaceConfig(layers, described.state_sizes(), convolution, product)


def _experts(described: Description, chosen: Computed) -> ExpertConfig | None:
    """Return the experts, which are ``chosen`` as the family does; None where all layers are dense.

    Mixtral and Qwen3 have them in every layer but some, DeepSeek in those after the first ones.
    """
    keys, layers = described.keys, described.layers
    dense = tuple(layer for layer in range(layers) if not described.has_experts(layer))
    if len(dense) == layers:
        return None
    keys.require_neutral(chosen.get("neutral", {}))
    experts, top_k, width, shared = described.experts()
    groups = chosen.get("groups", "none")
    grouped = groups in ("always", keys.get("topk_method"))
    return ExpertConfig(
        experts,
        top_k,
        width,
        shared_size=shared,
        dense_layers=dense,
        normalise=keys.flag("norm_topk_prob", chosen.get("normalise_by_default", True)),
        scale=keys.number("routed_scaling_factor", chosen["scale"]) if "scale" in chosen else 1.0,
        groups=(keys.find("n_group") or 1) if grouped else 1,
        top_groups=(keys.find("topk_group") or 1) if grouped else 1,
        **chosen.get("fields", {}),
    )
