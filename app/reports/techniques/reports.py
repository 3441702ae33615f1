"""The numbers behind ``servetwin techniques intensity``, ``memory`` and ``latency``."""

from collections.abc import Iterable
from dataclasses import asdict
from math import isfinite
from typing import Any

from servetwin.app.scenario.options.techniques import (
    IntensityOptions,
    LatencyOptions,
    MemoryOptions,
)
from servetwin.sim.catalogue.catalogue import find_hardware, find_model, shipped_models
from servetwin.sim.catalogue.hardware import Hardware
from servetwin.sim.catalogue.layers import Attention
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.step_times.roofline.decode_latency import (
    decode_latency,
    devices_for,
    ideal_deployment,
    most_tokens_per_s,
    with_kv_heads,
)
from servetwin.sim.step_times.roofline.deployment import RUNTIME_BYTES
from servetwin.sim.step_times.roofline.formats import ACTIVATION_BYTES, KV_FORMATS, find_format
from servetwin.sim.step_times.roofline.matrix_products import (
    Intensity,
    intensity_table,
    matmul_rows_at,
    token_work,
    total_work,
    with_ffn_matrices,
)
from servetwin.sim.step_times.roofline.memory import MemorySizes, memory_sizes
from servetwin.sim.step_times.roofline.step_memory import LargestStep, StepBuffers
from servetwin.workloads.errors import PolicyError, did_you_mean

KEYS = (128, 512, 4096, 32_000)
POSITIONS = (128, 512, 4096, 32_768)
PLAIN_MATRICES = 2
BF16_BYTES = 2.0
MOST = 10**7
MOST_DIGITS = 20
MOST_ROWS = 10**6
MOST_SEQUENCES = 10**5


def intensity_report(options: IntensityOptions) -> dict[str, Any]:
    """Return intensities of all n and l, work per token, and the ridge of a device.

    Raises ``ServetwinError`` that names the option or the catalogue entry that is wrong.
    """
    model, context, unit_bytes = options.model, options.context, options.element_bytes
    shape = find_model(model or "llama-2-7b")
    keys = whole_numbers(context, "--context") if context else KEYS
    matrices: list[int | None] = [None] if model else [PLAIN_MATRICES, None]
    if options.ffn_matrices is not None:
        matrices = [whole_number(options.ffn_matrices, "--ffn-matrices")]
    per = 1.0 if unit_bytes is None else positive(unit_bytes, "--element-bytes")
    rows = whole_numbers(options.rows, "--rows")
    positions = keys if context else POSITIONS
    device = find_hardware(options.hardware) if options.hardware else None
    return {
        "model": shape.name,
        "unit": "FLOP/element" if unit_bytes is None else "FLOP/byte",
        "element_bytes": unit_bytes,
        "layers": shape.layer_count,
        "layers_without_products": sum(
            group.count for group in shape.layers if not isinstance(group.mixer, Attention)
        ),
        "intensity": [_cell(cell, per) for cell in _cells(shape, rows, keys)],
        "per_token": [_token_row(shape, at, m) for m in matrices for at in positions],
        "ridge": _ridge(device, shape, unit_bytes) if device else None,
    }


def memory_report(options: MemoryOptions) -> dict[str, Any]:
    """Return the sizes of the models, or of all shipped ones; with a device, how many sequences
    fit."""
    whole_number(options.context, "--context")
    whole_number(options.step_rows, "--step-rows", MOST_ROWS)
    whole_number(options.logit_rows, "--logit-rows", MOST_ROWS)
    device = find_hardware(options.hardware) if options.hardware else None
    sizes = [_sizes(find_model(name), options) for name in options.model or shipped_models()]
    room = device and device.memory_bytes - RUNTIME_BYTES
    return {
        "context_tokens": options.context,
        "format": options.form,
        "kv_format": options.kv_format,
        "step_rows": options.step_rows,
        "logit_rows": options.logit_rows,
        "eager": options.eager,
        "hardware": device and device.name,
        "memory_bytes": device and device.memory_bytes,
        "models": [
            {**asdict(size), "sequences": room and size.sequences_in(room)} for size in sizes
        ],
    }


def _sizes(model: ModelShape, options: MemoryOptions) -> MemorySizes:
    """Return the sizes of a model, its step's tensors in the numbers that products compute in."""
    form = find_format(options.form)
    element_bytes = 4.0 if form.compute == "fp32" else ACTIVATION_BYTES
    logit_rows = min(options.logit_rows, options.step_rows)
    step = LargestStep(options.step_rows, logit_rows, options.context)
    peak = StepBuffers(element_bytes, fused=not options.eager).peak(model, step)
    return memory_sizes(
        model,
        options.context,
        form.weight_bytes,
        kv_element_bytes(options.kv_format),
        peak,
    )


def latency_report(options: LatencyOptions) -> dict[str, Any]:
    """Return a row for every number of KV heads and every batch, and the limit of throughput."""
    context, tokens_per_day = options.context, options.tokens_per_day
    whole_number(context, "--context")
    if tokens_per_day is not None:
        positive(tokens_per_day, "--tokens-per-day")
    device, shape = find_hardware(options.hardware), find_model(options.model or "llama-2-13b")
    numbers = find_format(options.form), kv_element_bytes(options.kv_format)
    kv_heads = options.kv_heads
    if kv_heads is None and options.model is None:
        kv_heads = "40,8"
    counts = [] if kv_heads is None else whole_numbers(kv_heads, "--kv-heads")
    variants = [with_kv_heads(shape, count) for count in counts] or [shape]
    servers = [ideal_deployment(variant, device, *numbers) for variant in variants]
    batches = whole_numbers(options.batch, "--batch", MOST_SEQUENCES)
    rows = [asdict(decode_latency(of, batch, context)) for of in servers for batch in batches]
    if tokens_per_day is not None:
        for row in rows:
            row["devices"] = devices_for(tokens_per_day, row["tokens_per_s"])
    return {
        "model": shape.name,
        "hardware": device.name,
        "memory_bytes": device.memory_bytes,
        "context_tokens": context,
        "format": options.form,
        "kv_format": options.kv_format,
        "tokens_per_day": tokens_per_day,
        "rows": rows,
        "most_tokens_per_s": [most_tokens_per_s(server, context) for server in servers],
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
