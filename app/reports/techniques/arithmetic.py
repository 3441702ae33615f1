"""``servetwin techniques intensity``, ``memory`` and ``latency``: the arithmetic and its tables.

GB are 10^9 bytes, GiB 2^30, KiB 2^10.
"""

from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

from servetwin.app.reports.table import table_lines
from servetwin.app.scenario.options.techniques import (
    IntensityOptions,
    LatencyOptions,
    MemoryOptions,
)
from servetwin.app.words import asset_table
from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.catalogue.hardware import Hardware
from servetwin.sim.catalogue.layers import Attention
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.catalogue.shipped import shipped_models
from servetwin.sim.step_times.roofline.decode_latency import (
    decode_latency,
    devices_for,
    ideal_deployment,
    most_tokens_per_s,
    with_kv_heads,
)
from servetwin.sim.step_times.roofline.formats import ACTIVATION_BYTES, KV_FORMATS, find_format
from servetwin.sim.step_times.roofline.matrix_products import (
    intensity_table,
    matmul_rows_at,
    token_work,
    total_work,
    with_ffn_matrices,
)
from servetwin.sim.step_times.roofline.memory import MemorySizes, memory_sizes
from servetwin.sim.step_times.roofline.step_memory import RUNTIME_BYTES, LargestStep, StepBuffers
from servetwin.workloads.errors import PolicyError, require_name

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
        "intensity": _cells(shape, rows, keys, per),
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
        model, options.context, form.weight_bytes, kv_element_bytes(options.kv_format), peak
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
    require_name(name, KV_FORMATS, "--kv-format: unknown", PolicyError)
    return KV_FORMATS[name]


def _cells(
    model: ModelShape, rows: Sequence[int], keys: Sequence[int], element_bytes: float
) -> list[dict[str, Any]]:
    """Return all products with scores in memory, and attention again with scores on the chip."""
    names = ("kind", "scores_in_memory", "rows", "keys", "intensity")
    return [
        dict(zip(names, (kind, in_memory, n, length, intensity / element_bytes), strict=True))
        for in_memory in (True, False)
        for (kind, n, length), intensity in intensity_table(model, rows, keys, in_memory).items()
        if in_memory or kind == "attention"
    ]


def _token_row(model: ModelShape, position: int, matrices: int | None) -> dict[str, Any]:
    work = token_work(with_ffn_matrices(model, matrices) if matrices else model, position)
    counts = {matrices} if matrices else {group.ffn.matrices for group in model.layers}
    count = counts.pop() if len(counts) == 1 else None
    row = {"position": position, "ffn_matrices": count, "total": asdict(total_work(work))}
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


# Kind of product, whether scores go through memory, and title of the table.
_PRODUCTS: list[tuple[str, bool, str]] = asset_table("words.yaml")["products"]
_KINDS = ("projections", "attention", "FFN", "total")
_MOST_COLUMNS = 7
_LONGEST_NAME = 18
_MOST_SPELT_OUT = 1e13


def intensity_lines(report: dict[str, Any]) -> list[str]:
    """Return intensities, n across and l down, then the work per token."""
    unit = "FLOP/element (half of it is FLOP/byte in bf16)"
    if report["element_bytes"] is not None:
        unit = f"FLOP/byte at {report['element_bytes']:g} bytes an element"
    lines = [f"{_short(report['model'])}: {unit}; n rows against l keys, - where n > l"]
    if without := report["layers_without_products"]:
        lines.append(
            f"{without} of {report['layers']} layers mix by latents or states: only their FFN is"
            " in these tables"
        )
    rows = sorted({cell["rows"] for cell in report["intensity"]})
    for first in range(0, len(rows), _MOST_COLUMNS):
        for kind, in_memory, title in _PRODUCTS:
            cells = {
                (cell["keys"], cell["rows"]): cell["intensity"]
                for cell in report["intensity"]
                if (cell["kind"], cell["scores_in_memory"]) == (kind, in_memory)
            }
            lines += _grid(title, cells, rows[first : first + _MOST_COLUMNS])
    return [*lines, *_ridge_lines(report["ridge"]), *_token_lines(report["per_token"])]


def memory_lines(report: dict[str, Any]) -> list[str]:
    """Return a row for each model."""
    device = report["hardware"]
    heads = ["", "params 10^9", "weights GB", "KV B/token", "state MiB", "sequence GiB", "step MiB"]
    lines = [
        f"weights in {report['format']}, KV in {report['kv_format']}; a sequence has"
        f" {report['context_tokens']:,} tokens",
        *table_lines([*heads, "fit"] if device else heads, map(_memory_row, report["models"])),
        f"step: tensors of {report['step_rows']:,} rows, {report['logit_rows']:,} of them with"
        f" logits, {'nothing' if report['eager'] else 'all kernels'} fused",
    ]
    if device:
        room = f"the {report['memory_bytes'] / 1e9:g} GB of one {device}"
        lines.append(f"fit: sequences beside weights, step and runtime in {room}")
    return lines


def latency_lines(report: dict[str, Any]) -> list[str]:
    """Return a row for each batch, and the limit of throughput for each number of KV heads."""
    fits = f"fits {report['memory_bytes'] / 1e9:g} GB"
    columns = ["batch", "KV heads", "params", "bytes", "ms", "tokens/s", fits, "roofline ms"]
    lines = [
        f"{_short(report['model'])} in {report['format']} on one {report['hardware']}, KV in"
        f" {report['kv_format']}, {report['context_tokens']:,} tokens a sequence",
        *table_lines(columns, map(_latency_row, report["rows"]), ">"),
        "bytes: all weights and KV; ms: reading them once; roofline ms: a step with its compute",
    ]
    heads = dict.fromkeys(row["kv_heads"] for row in report["rows"])
    lines += [
        f"tokens/s tend to {limit:,.2f} as the batch grows{_with_heads(count)}"
        for count, limit in zip(heads, report["most_tokens_per_s"], strict=True)
    ]
    if per_day := report["tokens_per_day"]:
        lines += [
            f"{per_day:,.0f} tokens a day at batch {row['batch']}{_with_heads(row['kv_heads'])}: "
            f"{row['devices']:,} x {report['hardware']}"
            for row in report["rows"]
        ]
    return lines


def _with_heads(count: int | None) -> str:
    return f", {count} KV heads" if count else ""


def _grid(title: str, cells: dict[tuple[int, int], float], rows: Sequence[int]) -> list[str]:
    if not cells:
        return []
    lengths = sorted({length for length, _ in cells})
    table = [[f"l = {at:,}", *(_digits(cells.get((at, n))) for n in rows)] for at in lengths]
    return [title, *table_lines(["n", *(f"{n:,}" for n in rows)], table)]


def _ridge_lines(ridge: dict[str, Any] | None) -> list[str]:
    if ridge is None:
        return []
    lines = [
        f"{ridge['hardware']}: ridge {ridge['flops_per_byte']:.4f} FLOP/byte ="
        f" {ridge['flops_per_element']:.4f} FLOP/element at {ridge['element_bytes']:g} bytes"
    ]
    if ridge["ffn_rows"]:
        lines.append(f"  an FFN product reaches it at {ridge['ffn_rows']:,.2f} rows")
    return lines


def _token_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    lines = []
    for matrices in dict.fromkeys(row["ffn_matrices"] for row in rows):
        counted = f", {matrices} matrices an FFN" if matrices else ""
        lines.append(f"per token, 2^20 FLOPs / 2^20 elements{counted}; no head, no activations")
        shown = [_token_cells(row) for row in rows if row["ffn_matrices"] == matrices]
        lines += table_lines(["", *_KINDS], shown)
    return lines


def _token_cells(row: dict[str, Any]) -> list[str]:
    cells = (
        " / ".join(_digits(row[kind][amount] / 2**20) for amount in ("flops", "elements"))
        for kind in _KINDS
    )
    return [f"l = {row['position']:,}", *cells]


def _memory_row(row: dict[str, Any]) -> list[str]:
    return [
        _short(row["model"]),
        _billions(row["params"]),
        _billions(row["weight_bytes"]),
        f"{row['kv_bytes_per_token']:,.0f}",
        f"{row['state_bytes'] / 2**20:,.1f}",
        f"{row['sequence_bytes'] / 2**30:,.4f}",
        f"{row['step_bytes'] / 2**20:,.1f}",
        *([] if row["sequences"] is None else [f"{row['sequences']:,}"]),
    ]


def _latency_row(row: dict[str, Any]) -> list[str]:
    return [
        f"{row['batch']:,}",
        f"{row['kv_heads'] or '-'}",
        f"{row['params']:,.0f}",
        _whole(row["memory_bytes"]),
        _digits(row["latency_s"] * 1e3),
        _digits(row["tokens_per_s"]),
        "yes" if row["fits"] else "no",
        _digits(row["roofline_s"] * 1e3),
    ]


def _digits(number: float | None) -> str:
    """Return seven digits, or three where seven would be too wide; - for None."""
    if number is None:
        return "-"
    return format(number, ".7g" if 1 <= number < 1e6 else ".3g")


def _whole(number: float) -> str:
    return f"{number:,.0f}" if number < _MOST_SPELT_OUT else f"{number:.7g}"


def _billions(number: float) -> str:
    billions = number / 1e9
    return f"{billions:,.3f}" if billions >= 0.1 else f"{billions:.3g}"


def _short(name: str) -> str:
    return name if len(name) < _LONGEST_NAME else name[: _LONGEST_NAME - 4] + "..."
