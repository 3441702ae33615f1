"""A server in tables: the operators of its steps, and intensities and latencies by formula."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from servetwin.sim.step_times.roofline import breakdown
from servetwin.sim.step_times.roofline.deployment import Deployment

PRODUCTS = {
    "projections": ("projections", True),
    "attention, scores through memory": ("attention", True),
    "attention, scores on the chip": ("attention", False),
    "FFN": ("FFN", True),
}
"""Products of an intensity table: (kind, whether scores go through memory)."""


def breakdowns(
    deployment: Deployment, sequences: int, context_tokens: int
) -> dict[str, breakdown.Breakdown]:
    """Return a step of ``sequences`` decodes at this context, and a prefill step of that length."""
    return {
        "decode": breakdown.decode_breakdown(deployment, sequences, context_tokens),
        "prefill": breakdown.prefill_breakdown(deployment, context_tokens),
    }


def operators_frame(steps: Mapping[str, breakdown.Breakdown]) -> pd.DataFrame:
    """Return a row per phase and operator for ``app.figures.techniques``, and the overhead."""
    return pd.DataFrame([row for phase, step in steps.items() for row in _rows(phase, step)])


def peaks_flops_per_s(deployment: Deployment) -> dict[str, float]:
    """Return the peaks of the operators' number formats, by format."""
    forms = [(form.compute, max(1.0, form.compute_share)) for form in
             (deployment.prefill, deployment.decode)]  # fmt: skip
    hardware = deployment.hardware
    return {
        precision if factor == 1 else f"sparse {precision}": hardware.peak(precision) * factor
        for precision, factor in (*forms, (breakdown.ATTENTION, 1.0))
    }


def step_sentence(phase: str, step: breakdown.Breakdown) -> str:
    """Return a sentence on a step: its time, memory- and compute-bound shares, longest operator."""
    longest = max(step.operators, key=lambda placed: placed.step_s)
    shares = ", ".join(
        f"{100 * step.share(bound):.0f} % {bound}-bound" for bound in ("memory", "compute")
    )
    rest = 100 * step.rest_s / step.seconds
    return (
        f"{phase}: {step.seconds * 1e3:.3g} ms a step, {shares}, {rest:.0f} % "
        f"overhead, launches and messages. Longest: {longest.operator.name}, "
        f"{100 * longest.step_s / step.seconds:.0f} % ({longest.bound}-bound)."
    )


def intensity_grid(report: dict[str, Any], product: str) -> pd.DataFrame:
    """Return n across, l down; undefined where n > l. Empty where the model has no such product."""
    cells = [
        cell for cell in report["intensity"]
        if (cell["kind"], cell["scores_in_memory"]) == PRODUCTS[product]
    ]  # fmt: skip
    if not cells:
        return pd.DataFrame()
    grid = pd.DataFrame(cells).pivot_table(index="keys", columns="rows", values="intensity")
    grid.index = pd.Index([f"l = {keys:,}" for keys in grid.index], name="keys")
    grid.columns = pd.Index([f"n = {rows:,}" for rows in grid.columns])
    return grid


def work_frame(report: dict[str, Any]) -> pd.DataFrame:
    """Return FLOPs and elements moved per token by position, in units of 2^20."""
    kinds = ("projections", "attention", "FFN", "total")
    return pd.DataFrame(
        {
            "position": row["position"],
            "FFN matrices": row["ffn_matrices"],
            **{
                f"{kind}, 2^20 {unit}": row[kind][key] / 2**20
                for kind in kinds
                for key, unit in (("flops", "FLOP"), ("elements", "elements"))
            },
        }
        for row in report["per_token"]
    )


def latency_frame(report: dict[str, Any]) -> pd.DataFrame:
    """Return a row per batch (and number of KV heads): latency is bytes over bandwidth."""
    return pd.DataFrame(
        {
            "batch": row["batch"],
            "KV heads": row["kv_heads"],
            "bytes read, GB": row["read_bytes"] / 1e9,
            "step, ms": row["latency_s"] * 1e3,
            "step with compute, ms": row["roofline_s"] * 1e3,
            "throughput, tokens/s": row["tokens_per_s"],
            "fits": "yes" if row["fits"] else "no",
        }
        for row in report["rows"]
    )


def _rows(phase: str, step: breakdown.Breakdown) -> list[dict[str, Any]]:
    rest = {"phase": phase, "operator": "overhead, launches, messages", "bound": "neither"}
    return [
        *(_row(phase, step, placed) for placed in step.operators),
        {**rest, "step_ms": 1e3 * step.rest_s, "share": step.rest_s / step.seconds,
         "flops": 0.0, "moved_bytes": 0.0, "flops_per_s": 0.0},
    ]  # fmt: skip


def _row(phase: str, step: breakdown.Breakdown, placed: breakdown.Placed) -> dict[str, Any]:
    operator = placed.operator
    return {
        "phase": phase,
        "operator": operator.name,
        "bound": placed.bound,
        "step_ms": 1e3 * placed.step_s,
        "share": placed.step_s / step.seconds,
        "flops": operator.flops,
        "moved_bytes": operator.moved_bytes,
        "intensity_flops_per_byte": operator.intensity,
        "flops_per_s": placed.attained_flops_per_s,
    }
