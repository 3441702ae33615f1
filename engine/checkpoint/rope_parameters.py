"""Rotary positions as a ``config.json`` describes them.

``KNOWN_KEYS``: keys that change what is computed, with the values that do not (the first one is
proposed), and the keys of the types of rotary positions. ``_KEYS``: by type of scaling, what may
stand beside the type.
"""

import math
from typing import Any

from servetwin.engine.models.rope_scaling import RopeScaling, yarn_magnitude
from servetwin.workloads.models.description import NAMES, Description
from servetwin.workloads.models.keys import Keys
from servetwin.workloads.program.package import shipped_json

KNOWN_KEYS: dict[str, Any] = shipped_json("engine/checkpoint/known_keys.json")
_KEYS: dict[str, list[str]] = KNOWN_KEYS["rope types"]


def rope_theta(keys: Keys, key: str = "rope_theta", layers: str = "full_attention") -> float:
    """Return the base of the frequencies, of ``rope_parameters`` or the older ``key``."""
    rope = _parameters(keys, layers)
    if rope is not None and "rope_theta" in rope.values:
        return rope.number("rope_theta")
    return keys.number(key, 10_000.0)


def _parameters(keys: Keys, layers: str = "full_attention") -> Keys | None:
    """Return ``rope_parameters``, which may have a part for each kind of layers (Gemma 3)."""
    rope = keys.part("rope_parameters")
    return rope.part(layers) if rope is not None and layers in rope.values else rope


def rope_scaling(described: Description, partial: bool = False) -> RopeScaling | None:
    """Return how the frequencies are stretched; heads may turn in part where ``partial``.

    ``dynamic`` changes nothing up to the longest context of the config, which is the model's here.
    Raises ``EngineError`` for a type, or a key beside it, that the engine does not know.
    """
    keys = described.keys
    rope = _parameters(keys) or keys.part("rope_scaling")
    if rope is None:
        return None
    kind = rope.get("rope_type", rope.get("type", "default"))
    if not partial:
        rope.require_neutral({"partial_rotary_factor": (1, 1.0)})
    if not isinstance(kind, str) or kind not in _KEYS:
        raise rope.wrong("rope_type", f"one of {', '.join(_KEYS)}")
    for key, value in rope.values.items():
        if value is not None and key not in (*_KEYS[kind], *KNOWN_KEYS["every rope type"]):
            raise rope.failure(f"{key} is not supported beside rope_type {kind!r}")
    if kind == "longrope":
        return _longrope(rope, described)
    factor = rope.number("factor", 1.0 if kind == "default" else None)
    if kind in ("default", "dynamic"):
        return None
    return RopeScaling("linear", factor) if kind == "linear" else _ramp(kind, factor, rope, keys)


def _ramp(kind: Any, factor: float, rope: Keys, keys: Keys) -> RopeScaling:
    """Return a rule by the length of waves (llama3) or the number of turns (yarn)."""
    original = rope.find(_ORIGINAL) or keys.count(*NAMES["context"])
    ends = "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow"
    numbers: Any = {key: rope.number(key) for key in ends if rope.get(key) is not None}
    return RopeScaling(
        kind,
        factor,
        original,
        truncate=rope.flag("truncate", True),
        rotary_factor=_rotary_factor(rope, factor),
        score_factor=_score_factor(rope, factor),
        **numbers,
    )


_ORIGINAL = "original_max_position_embeddings"


def _longrope(rope: Keys, described: Description) -> RopeScaling:
    """Return the short factors, for contexts up to the original length: longer ones turn all keys
    anew, and the keys of a sequence are stored turned.
    """
    keys, pairs = described.keys, described.head_dim // 2
    longest = keys.count(*NAMES["context"])
    original = rope.find(_ORIGINAL) or keys.find(_ORIGINAL) or longest
    factor = rope.number("factor", longest / original)
    short = rope.get("short_factor")
    numbers = isinstance(short, list) and all(type(x) in (int, float) and x > 0 for x in short)
    if not numbers or len(short) != pairs:
        raise rope.wrong("short_factor", f"a list of {pairs} numbers above 0")
    sharpened = math.sqrt(1 + math.log(factor) / math.log(max(original, 2))) if factor > 1 else 1.0
    return RopeScaling(
        "longrope",
        factor,
        original,
        rotary_factor=rope.number("attention_factor", sharpened),
        divisors=tuple(map(float, short)),
    )


def _rotary_factor(rope: Keys, factor: float) -> float | None:
    """Return what cosines and sines are multiplied by; None: the rule of YaRN."""
    if rope.get("attention_factor") is not None:
        return rope.number("attention_factor")
    if not rope.get("mscale") or not rope.get("mscale_all_dim"):
        return None
    mscale, of_all = rope.number("mscale"), rope.number("mscale_all_dim")
    return yarn_magnitude(factor, mscale) / yarn_magnitude(factor, of_all)


def _score_factor(rope: Keys, factor: float) -> float:
    """Return what the scores of latent attention are multiplied by besides."""
    of_all = rope.get("mscale_all_dim")
    return yarn_magnitude(factor, rope.number("mscale_all_dim")) ** 2 if of_all else 1.0
