"""The number formats of a checkpoint, from ``quantization_config`` or ``hf_quant_config.json``."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from servetwin.sim.catalogue.quantisation import CacheFormat, Quantisation, WeightFormat
from servetwin.workloads.errors import ShapeError
from servetwin.workloads.models.description import NAMES
from servetwin.workloads.models.keys import Keys
from servetwin.workloads.program.package import shipped_json

_FORMATS = shipped_json("sim/catalogue/hf_formats.json")
# The formats of NVIDIA's Model Optimizer.
_BY_ALGORITHM: dict[str, WeightFormat] = _FORMATS["by_algorithm"]
_BY_METHOD: dict[str, WeightFormat] = _FORMATS["by_method"]
# By kind and bits (compressed-tensors); ``a`` where the activations are in fewer bits as well.
_BY_WEIGHTS: dict[str, WeightFormat] = _FORMATS["by_weights"]
_ATTENTION = re.compile(r"self_attn|linear_attn|mixer\.(in|out|q)_?proj|attention|\.attn")
_EXPERTS = re.compile(r"(?<!shared)(?<!shared_)experts")


def quantisation_of(keys: Keys, layers: int) -> Quantisation:
    """Return the formats that a config names; bf16 where it names none.

    A part that at least half of the layers leave out is in bf16; without experts most weights are
    those of the FFNs.

    Raises ``ShapeError`` for a quantisation that has no format here.
    """
    where, stated = keys.where, keys.get("quantization_config") or keys.get("quantization")
    if stated is None:
        return Quantisation()
    if not isinstance(stated, Mapping):
        raise keys.wrong("quantization_config", "an object {...}")
    has_experts = keys.find(*NAMES["experts"], least=0)
    if isinstance(parts := stated.get("quantized_layers"), Mapping):
        experts, others = _mixed(parts, where)
    else:
        experts = others = _format(stated, where)
        ignored = _ignored(stated)
        if has_experts and _covers(_ATTENTION, ignored, layers):
            others = "bf16"
        if _covers(_EXPERTS, ignored, layers):
            experts = "bf16"
    if "fp4" in str(keys.get("expert_dtype")):
        experts = "mxfp4"
    return Quantisation(gemm=others, experts=experts, kv=_cache(stated))


def _format(stated: Mapping[str, Any], where: str) -> WeightFormat:
    """Return the format of all products that are not left out."""
    method, bits = str(stated.get("quant_method", "")), stated.get("bits", 4)
    groups = stated.get("config_groups")
    algorithm = str(stated.get("quant_algo") or "").upper()
    if algorithm in _BY_ALGORITHM:
        return _BY_ALGORITHM[algorithm]
    if method == "fp8" or (not method and "weight_block_size" in stated):
        return "fp8-block" if stated.get("weight_block_size") else "fp8"
    if method in _BY_METHOD and (_BY_METHOD[method] != "w4a16" or bits == 4):
        return _grouped(_BY_METHOD[method], stated)
    if isinstance(groups, Mapping) and groups:
        return _of_group(next(iter(groups.values())), where)
    name = " ".join(part for part in (method, algorithm, f"{bits} bits") if part)
    raise ShapeError(
        f"{where}: quantization_config: no format here for {name!r}; there are fp8, fp8 in blocks, "
        "int8 (w8a8), 4-bit AWQ and GPTQ, NVFP4, MXFP4; take quantization_config out for bf16"
    )


def _of_group(group: Any, where: str) -> WeightFormat:
    """Return the format of a group of compressed-tensors."""
    weights = group.get("weights") if isinstance(group, Mapping) else None
    if not isinstance(weights, Mapping):
        raise ShapeError(f"{where}: quantization_config: config_groups: a group needs 'weights'")
    kind, bits = str(weights.get("type", "int")), weights.get("num_bits")
    activations = "" if group.get("input_activations") is None else " a"
    known = _BY_WEIGHTS.get(f"{kind} {bits}{activations}")
    if known is None:
        raise ShapeError(
            f"{where}: quantization_config: no format here for {kind} weights of {bits} bits; "
            "there are fp8, int8 (w8a8), int4 (w4a16), NVFP4 and MXFP4"
        )
    if known == "fp8" and weights.get("strategy") == "block":
        return "fp8-block"
    return _grouped(known, weights)


def _grouped(form: WeightFormat, stated: Mapping[str, Any]) -> WeightFormat:
    """Return the format with as few weights to a scale as are stated."""
    in_32: dict[WeightFormat, WeightFormat] = {"nvfp4": "mxfp4", "w4a16": "w4a16-g32"}
    return in_32.get(form, form) if stated.get("group_size") == 32 else form


def _mixed(parts: Mapping[str, Any], where: str) -> tuple[WeightFormat, WeightFormat]:
    """Return the formats of experts and of all else where each layer names its own."""
    experts: list[WeightFormat] = []
    others: list[WeightFormat] = []
    for name, part in parts.items():
        form = _format(part if isinstance(part, Mapping) else {}, f"{where}: {name}")
        (experts if _EXPERTS.search(name) else others).append(form)
    return _commonest(experts), _commonest(others)


def _commonest(forms: list[WeightFormat]) -> WeightFormat:
    return max(set(forms), key=forms.count, default="bf16")


def _ignored(stated: Mapping[str, Any]) -> list[str]:
    names = ("ignore", "modules_to_not_convert", "exclude_modules", "ignored_layers")
    lists = (stated.get(name) for name in names)
    return [str(entry) for entry in next((x for x in lists if isinstance(x, list)), [])]


def _covers(part: re.Pattern[str], ignored: Iterable[str], layers: int) -> bool:
    """Return whether a part is left out, by a pattern or in at least half of the layers."""
    left_out = set[str]()
    for entry in ignored:
        if part.search(entry) and "indexer" not in entry and "norm" not in entry:
            number = re.search(r"layers\.(\d+)", entry)
            if number is None:
                return True
            left_out.add(number[1])
    return 2 * len(left_out) >= layers


def _cache(stated: Mapping[str, Any]) -> CacheFormat:
    scheme = stated.get("kv_cache_scheme") or stated.get("kv_cache_quant_algo")
    return "fp8" if scheme else "bf16"
