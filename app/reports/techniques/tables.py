"""Tables of ``servetwin techniques`` as plain text that fits 100 columns.

GB are 10^9 bytes, GiB 2^30, KiB 2^10.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from servetwin.app.reports.tables import WIDTH

_TITLES = {
    ("projections", True): "projections",
    ("attention", True): "attention, its n x l scores through memory",
    ("attention", False): "attention, its scores on the chip (FlashAttention)",
    ("FFN", True): "FFN, each product alone",
}
_KINDS = ("projections", "attention", "FFN", "total")
_LABEL = 14
_CELL = 12
_PAIR = 21
_NAME = 18
_MOST_SPELT_OUT = 1e13


def intensity_lines(report: dict[str, Any]) -> list[str]:
    """Return intensities, n across and l down, then the work per token."""
    name = _short(report["model"])
    lines = [f"{name}: {_unit(report)}; n rows against l keys, - where n > l"]
    if without := report["layers_without_products"]:
        lines.append(
            f"{without} of {report['layers']} layers mix by latents or states: only their FFN is"
            " in these tables"
        )
    columns = (WIDTH - _LABEL) // _CELL
    rows = sorted({cell["rows"] for cell in report["intensity"]})
    for first in range(0, len(rows), columns):
        for (kind, in_memory), title in _TITLES.items():
            cells = {
                (cell["keys"], cell["rows"]): cell["intensity"]
                for cell in report["intensity"]
                if (cell["kind"], cell["scores_in_memory"]) == (kind, in_memory)
            }
            lines += _grid(title, cells, rows[first : first + columns])
    return [*lines, *_ridge_lines(report["ridge"]), *_token_lines(report["per_token"])]


def memory_lines(report: dict[str, Any]) -> list[str]:
    """Return a row for each model."""
    device = report["hardware"]
    lines = [
        f"weights in {report['format']}, KV in {report['kv_format']}; a sequence has"
        f" {report['context_tokens']:,} tokens",
        f"{'':<{_NAME}}{'params 10^9':>12}{'weights GB':>11}{'KV B/token':>12}"
        f"{'state MiB':>10}{'sequence GiB':>13}{'step MiB':>12}"
        + (f"{'fit':>12}" if device else ""),
    ]
    lines += [_memory_row(row) for row in report["models"]]
    lines.append(
        f"step: tensors of {report['step_rows']:,} rows, {report['logit_rows']:,} of them with"
        f" logits, {'nothing' if report['eager'] else 'all kernels'} fused"
    )
    if device:
        gb = report["memory_bytes"] / 1e9
        beside = "beside weights, step and runtime"
        lines.append(f"fit: sequences {beside} in the {gb:g} GB of one {device}")
    return lines


def latency_lines(report: dict[str, Any]) -> list[str]:
    """Return a row for each batch, and the limit of throughput for each number of KV heads."""
    fits = f"fits {report['memory_bytes'] / 1e9:g} GB"
    lines = [
        f"{_short(report['model'])} in {report['format']} on one {report['hardware']}, KV in"
        f" {report['kv_format']}, {report['context_tokens']:,} tokens a sequence",
        f"{'batch':>7}{'KV heads':>10}{'params':>17}{'bytes':>18}{'ms':>11}{'tokens/s':>12}"
        f"{fits:>13}{'roofline ms':>12}",
        *map(_latency_row, report["rows"]),
        "bytes: all weights and KV; ms: reading them once; roofline ms: a step with its compute",
    ]
    heads = dict.fromkeys(row["kv_heads"] for row in report["rows"])
    lines += [
        f"tokens/s tend to {limit:,.2f} as the batch grows{_with_heads(count)}"
        for count, limit in zip(heads, report["most_tokens_per_s"], strict=True)
    ]
    return [*lines, *_fleet_lines(report)]


def _fleet_lines(report: dict[str, Any]) -> list[str]:
    if not report["tokens_per_day"]:
        return []
    return [
        f"{report['tokens_per_day']:,.0f} tokens a day at batch {row['batch']}"
        f"{_with_heads(row['kv_heads'])}: {row['devices']:,} x {report['hardware']}"
        for row in report["rows"]
    ]


def _with_heads(count: int | None) -> str:
    return f", {count} KV heads" if count else ""


def _unit(report: dict[str, Any]) -> str:
    if report["element_bytes"] is None:
        return "FLOP/element (half of it is FLOP/byte in bf16)"
    return f"FLOP/byte at {report['element_bytes']:g} bytes an element"


def _grid(title: str, cells: dict[tuple[int, int], float], rows: Sequence[int]) -> list[str]:
    if not cells:
        return []
    header = f"{'n':<{_LABEL}}" + "".join(f"{n:>{_CELL},}" for n in rows)
    keys = sorted({length for length, _ in cells})
    return [title, header, *(_grid_row(x, (cells.get((x, n)) for n in rows)) for x in keys)]


def _grid_row(keys: int, cells: Iterable[float | None]) -> str:
    label, shown = f"l = {keys:,}", ("-" if cell is None else _digits(cell) for cell in cells)
    return f"{label:<{_LABEL}}" + "".join(f"{cell:>{_CELL}}" for cell in shown)


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
        lines.append(f"{'':<{_LABEL}}" + "".join(f"{kind:>{_PAIR}}" for kind in _KINDS))
        lines += [_token_row(row) for row in rows if row["ffn_matrices"] == matrices]
    return lines


def _token_row(row: dict[str, Any]) -> str:
    cells = (
        " / ".join(_digits(row[kind][amount] / 2**20) for amount in ("flops", "elements"))
        for kind in _KINDS
    )
    label = f"l = {row['position']:,}"
    return f"{label:<{_LABEL}}" + "".join(f"{cell:>{_PAIR}}" for cell in cells)


def _memory_row(row: dict[str, Any]) -> str:
    fit = "" if row["sequences"] is None else f"{row['sequences']:>12,}"
    return (
        f"{_short(row['model']):<{_NAME}}{_billions(row['params']):>12}"
        f"{_billions(row['weight_bytes']):>11}{row['kv_bytes_per_token']:>12,.0f}"
        f"{row['state_bytes'] / 2**20:>10,.1f}{row['sequence_bytes'] / 2**30:>13,.4f}"
        f"{row['step_bytes'] / 2**20:>12,.1f}{fit}"
    )


def _latency_row(row: dict[str, Any]) -> str:
    return (
        f"{row['batch']:>7,}{row['kv_heads'] or '-':>10}{row['params']:>17,.0f}"
        f"{_whole(row['memory_bytes']):>18}{_digits(row['latency_s'] * 1e3):>11}"
        f"{_digits(row['tokens_per_s']):>12}"
        f"{'yes' if row['fits'] else 'no':>13}{_digits(row['roofline_s'] * 1e3):>12}"
    )


def _digits(number: float) -> str:
    """Return seven digits, or three where seven would be too wide."""
    return format(number, ".7g" if 1 <= number < 1e6 else ".3g")


def _whole(number: float) -> str:
    return f"{number:,.0f}" if number < _MOST_SPELT_OUT else f"{number:.7g}"


def _billions(number: float) -> str:
    billions = number / 1e9
    return f"{billions:,.3f}" if billions >= 0.1 else f"{billions:.3g}"


def _short(name: str) -> str:
    return name if len(name) < _NAME else name[: _NAME - 4] + "..."
