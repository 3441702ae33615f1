"""The numbers behind ``servetwin techniques intensity``, ``memory`` and ``latency``."""

from collections.abc import Iterable
from dataclasses import asdict
from math import isfinite
from typing import Any

from sim.shapes.catalogue import find_hardware, find_model, shipped_models
from sim.shapes.hardware import Hardware
from sim.shapes.mixers import Attention
from sim.shapes.model import ModelShape
from sim.step_times.roofline.decode_latency import (
    decode_latency,
    devices_for,
    ideal_deployment,
    most_tokens_per_s,
    with_kv_heads,
)
from sim.step_times.roofline.formats import KV_FORMATS, find_format
from sim.step_times.roofline.matrix_products import Intensity, intensity_table, matmul_rows_at
from sim.step_times.roofline.memory import memory_sizes
from sim.step_times.roofline.token_work import token_work, total_work, with_ffn_matrices
from workloads.errors import PolicyError, did_you_mean

KEYS = (128, 512, 4096, 32_000)
POSITIONS = (128, 512, 4096, 32_768)
PLAIN_MATRICES = 2
BF16_BYTES = 2.0
MOST = 10**7
MOST_DIGITS = 20
MOST_SEQUENCES = 10**5


def intensity_report(
    model: str | None,
    rows: str,
    context: str | None,
    ffn_matrices: int | None,
    element_bytes: float | None,
    hardware: str | None,
) -> dict[str, Any]:
    """Return intensities of all n and l, work per token, and the ridge of a device.

    Raises ``ServetwinError`` that names the option or the catalogue entry that is wrong.
    """
    shape = find_model(model or "llama-2-7b")
    keys = whole_numbers(context, "--context") if context else KEYS
    matrices: list[int | None] = [None] if model else [PLAIN_MATRICES, None]
    if ffn_matrices is not None:
        matrices = [whole_number(ffn_matrices, "--ffn-matrices")]
    per = positive(element_bytes, "--element-bytes") if element_bytes is not None else 1.0
    counted = whole_numbers(rows, "--rows")
    return {
        "model": shape.name,
        "unit": "FLOP/element" if element_bytes is None else "FLOP/byte",
        "element_bytes": element_bytes,
        "layers": shape.layer_count,
        "layers_without_products": _without_products(shape),
        "intensity": [_cell(cell, per) for cell in _cells(shape, counted, keys)],
        "per_token": [
            _token_row(shape, position, m)
            for m in matrices
            for position in (keys if context else POSITIONS)
        ],
        "ridge": _ridge(find_hardware(hardware), shape, element_bytes) if hardware else None,
    }


def memory_report(
    models: Iterable[str], context_tokens: int, form: str, kv_format: str, hardware: str | None
) -> dict[str, Any]:
    """Return the sizes of the models, or of all shipped ones; with a device, how many sequences
    fit."""
    whole_number(context_tokens, "--context")
    formats = find_format(form).weight_bytes, kv_element_bytes(kv_format)
    device = find_hardware(hardware) if hardware else None
    sizes = [
        memory_sizes(find_model(name), context_tokens, *formats)
        for name in models or shipped_models()
    ]
    return {
        "context_tokens": context_tokens,
        "format": form,
        "kv_format": kv_format,
        "hardware": device and device.name,
        "memory_bytes": device and device.memory_bytes,
        "models": [
            {**asdict(size), "sequences": device and size.sequences_in(device.memory_bytes)}
            for size in sizes
        ],
    }


def latency_report(
    model: str | None,
    hardware: str,
    batch: str,
    kv_heads: str | None,
    context_tokens: int,
    form: str,
    kv_format: str,
    tokens_per_day: float | None,
) -> dict[str, Any]:
    """Return a row for every number of KV heads and every batch, and the limit of throughput."""
    whole_number(context_tokens, "--context")
    if tokens_per_day is not None:
        positive(tokens_per_day, "--tokens-per-day")
    device, shape = find_hardware(hardware), find_model(model or "llama-2-13b")
    numbers = find_format(form), kv_element_bytes(kv_format)
    deployments = [
        ideal_deployment(variant, device, *numbers)
        for variant in _variants(shape, "40,8" if kv_heads is None and model is None else kv_heads)
    ]
    batches = whole_numbers(batch, "--batch", MOST_SEQUENCES)
    rows = [
        asdict(decode_latency(deployment, sequences, context_tokens))
        for deployment in deployments
        for sequences in batches
    ]
    if tokens_per_day is not None:
        for row in rows:
            row["devices"] = devices_for(tokens_per_day, row["tokens_per_s"])
    return {
        "model": shape.name,
        "hardware": device.name,
        "memory_bytes": device.memory_bytes,
        "context_tokens": context_tokens,
        "format": form,
        "kv_format": kv_format,
        "tokens_per_day": tokens_per_day,
        "rows": rows,
        "most_tokens_per_s": [most_tokens_per_s(d, context_tokens) for d in deployments],
    }


def whole_numbers(text: str, option: str, most: int = MOST) -> list[int]:
    """Return the numbers in ``1,64,256``, each at least 1 and only once."""
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if not (part.isascii() and part.isdigit() and len(part) < MOST_DIGITS):
            raise PolicyError(
                f"{option}: {part!r} is not a whole number; give one, or some as in 1,64,256"
            )
    return list(dict.fromkeys(whole_number(int(part), option, most) for part in parts))


def whole_number(number: int, option: str, most: int = MOST) -> int:
    """Return ``number`` if it is from 1 to ``most``; raises ``PolicyError`` otherwise."""
    if not 1 <= number <= most:
        raise PolicyError(f"{option}: {number:,} is impossible; it must be 1 to {most:,}")
    return number


def positive(number: float, option: str) -> float:
    """Return ``number`` if it is above 0; raises ``PolicyError`` otherwise."""
    if not (isfinite(number) and number > 0):
        raise PolicyError(f"{option}: {number:g} is impossible; it must be greater than 0")
    return number


def kv_element_bytes(name: str) -> float:
    """Return the bytes per element of a KV format, by its name."""
    if name not in KV_FORMATS:
        hint = did_you_mean(name, KV_FORMATS, f"known are {', '.join(KV_FORMATS)}")
        raise PolicyError(f"--kv-format: unknown {name!r}; {hint}")
    return KV_FORMATS[name]


def _cells(model: ModelShape, rows: Iterable[int], keys: Iterable[int]) -> list[Intensity]:
    """Return all products with scores in memory, and attention again with scores on the chip."""
    rows, keys = list(rows), list(keys)
    on_chip = intensity_table(model, rows, keys, scores_in_memory=False)
    return [*intensity_table(model, rows, keys), *(c for c in on_chip if c.kind == "attention")]


def _cell(cell: Intensity, element_bytes: float) -> dict[str, Any]:
    figures = asdict(cell)
    return figures | {"intensity": figures.pop("flops_per_element") / element_bytes}


def _token_row(model: ModelShape, position: int, matrices: int | None) -> dict[str, Any]:
    work = token_work(with_ffn_matrices(model, matrices) if matrices else model, position)
    counts = {matrices} if matrices else {group.ffn.matrices for group in model.layers}
    own = counts.pop() if len(counts) == 1 else None
    row = {"position": position, "ffn_matrices": own, "total": asdict(total_work(work))}
    return {**row, **{str(kind): asdict(amount) for kind, amount in work.items()}}


def _ridge(hardware: Hardware, model: ModelShape, element_bytes: float | None) -> dict[str, Any]:
    """Return the device's ridge, and the rows at which an FFN product reaches it, if any do."""
    per_byte = hardware.ridge_flops_per_byte()
    each = element_bytes or BF16_BYTES
    rows = matmul_rows_at(per_byte, model.width, model.layers[0].ffn.width, each)
    return {
        "hardware": hardware.name,
        "flops_per_byte": per_byte,
        "element_bytes": each,
        "flops_per_element": per_byte * each,
        "ffn_rows": rows if isfinite(rows) else None,
    }


def _without_products(model: ModelShape) -> int:
    return sum(g.count for g in model.layers if not isinstance(g.mixer, Attention))


def _variants(model: ModelShape, kv_heads: str | None) -> list[ModelShape]:
    if kv_heads is None:
        return [model]
    return [with_kv_heads(model, count) for count in whole_numbers(kv_heads, "--kv-heads")]
