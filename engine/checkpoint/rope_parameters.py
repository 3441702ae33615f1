"""Rotary positions as a ``config.json`` describes them."""

from collections.abc import Sequence

from servetwin.engine.checkpoint.json_file import KNOWN_KEYS, JsonObject, shown
from servetwin.engine.models.model_config import RopeScaling, yarn_magnitude
from servetwin.workloads.errors import EngineError

_KEYS: dict[str, list[str]] = KNOWN_KEYS["rope types"]
"""By type of scaling, what may stand beside the type."""


def rope_theta(
    config: JsonObject, key: str = "rope_theta", layers: str = "full_attention"
) -> float:
    """Return the base of the frequencies, of ``rope_parameters`` or the older ``key``."""
    rope = _parameters(config, layers)
    if rope is not None and "rope_theta" in rope.values:
        return rope.number("rope_theta")
    return config.number(key, 10_000.0)


def _parameters(config: JsonObject, layers: str = "full_attention") -> JsonObject | None:
    """Return ``rope_parameters``, which may have a part for each kind of layers (Gemma 3)."""
    rope = config.part("rope_parameters")
    return rope.part(layers) if rope is not None and layers in rope.values else rope


def rope_scaling(config: JsonObject, partial: bool = False) -> RopeScaling | None:
    """Return how the frequencies are stretched; heads may turn in part where ``partial``.

    Raises ``EngineError`` for a type, or a key beside it, that the engine does not know.
    """
    rope = _parameters(config) or config.part("rope_scaling")
    if rope is None:
        return None
    kind = rope.get("rope_type", rope.get("type", "default"))
    if not partial:
        rope.require_neutral({"partial_rotary_factor": (1, 1.0)})
    if kind == "default":
        _check_keys(rope, "default", ())
        return None
    if not isinstance(kind, str) or kind not in _KEYS:
        raise rope.error(
            "rope_type", f"{shown(kind)} is not supported: use default, {', '.join(_KEYS)}"
        )
    _check_keys(rope, kind, _KEYS[kind])
    try:
        return _scaling(kind, rope, config)
    except EngineError as error:
        reason = str(error)
        if reason.startswith(config.place):
            raise
        raise EngineError(f"{rope.place}: {reason}") from None


def _check_keys(rope: JsonObject, kind: str, known: Sequence[str]) -> None:
    for key, value in rope.values.items():
        if value is not None and key not in (*known, *KNOWN_KEYS["every rope type"]):
            raise rope.error(key, f"is not supported beside rope_type {kind!r}")


def _scaling(kind: str, rope: JsonObject, config: JsonObject) -> RopeScaling:
    factor = rope.number("factor")
    if kind == "linear":
        return RopeScaling("linear", factor)
    longest = config.size("max_position_embeddings")
    original = rope.size("original_max_position_embeddings", longest)
    if kind == "llama3":
        low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
        return RopeScaling("llama3", factor, original, low, high)
    return RopeScaling(
        "yarn",
        factor,
        original,
        beta_fast=rope.number("beta_fast", 32.0),
        beta_slow=rope.number("beta_slow", 1.0),
        truncate=rope.flag("truncate", True),
        rotary_factor=_rotary_factor(rope, factor),
        score_factor=_score_factor(rope, factor),
    )


def _rotary_factor(rope: JsonObject, factor: float) -> float | None:
    """Return what cosines and sines are multiplied by; None: the rule of YaRN."""
    if rope.get("attention_factor") is not None:
        return rope.number("attention_factor")
    if not rope.get("mscale") or not rope.get("mscale_all_dim"):
        return None
    mscale, of_all = rope.number("mscale"), rope.number("mscale_all_dim")
    return yarn_magnitude(factor, mscale) / yarn_magnitude(factor, of_all)


def _score_factor(rope: JsonObject, factor: float) -> float:
    """Return what the scores of latent attention are multiplied by besides."""
    of_all = rope.get("mscale_all_dim")
    return yarn_magnitude(factor, rope.number("mscale_all_dim")) ** 2 if of_all else 1.0
