"""Intensity, latency and memory tables of ``servetwin techniques`` as frames."""

from typing import Any

import pandas as pd

PRODUCTS = {
    "projections": ("projections", True),
    "attention, scores through memory": ("attention", True),
    "attention, scores on the chip": ("attention", False),
    "FFN": ("FFN", True),
}
"""What an intensity table can be of: (kind, whether scores travel through memory)."""


def intensity_grid(report: dict[str, Any], product: str) -> pd.DataFrame:
    """n across, l down; undefined where n > l. Empty where the model has no such product."""
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
    """FLOPs and elements moved per token by position, in units of 2^20."""
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
    """A row per batch (and number of KV heads): latency is bytes over bandwidth."""
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
