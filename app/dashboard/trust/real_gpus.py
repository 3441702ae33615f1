"""Predictions of real GPU servers that others measured, by what their step times are from."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from servetwin.app.dashboard.formatting import page_text
from servetwin.app.figures.agreement import shown_metric
from servetwin.app.words import asset_table

# Written by ``python -m tests.benchmarks.real_gpus --write``: means and p90s, no requests.
FILE = Path(__file__).with_suffix(".json")
EVIDENCE: dict[str, dict[str, str]] = asset_table("words.yaml")["evidence"]

Results = Mapping[str, Any]


def real_gpus() -> Results:
    """Return what ``FILE`` holds: ``date``, ``source``, ``load`` and ``runs``."""
    results: Results = json.loads(FILE.read_text())
    return results


def figures_by_evidence(results: Results) -> pd.DataFrame:
    """Return a row per figure: ``gpu``, ``evidence``, ``metric``, ``point``, ``predicted`` and
    ``measured`` in seconds, relative ``error``."""
    return pd.DataFrame(
        {
            "gpu": run["gpu"],
            "evidence": prediction["evidence"],
            "metric": metric,
            "point": point,
            **row,
        }
        for run in results["runs"]
        for prediction in run["predictions"]
        for metric, points in prediction.get("figures", {}).items()
        for point, row in points.items()
    )


def evidence_table(results: Results, metric: str) -> pd.DataFrame:
    """Return a row per GPU and evidence: error, predicted and measured of mean and p90.

    The errors come first, where a narrow window shows them. ``requests`` says on how many it was
    judged, or why there is no prediction.
    """
    factor = shown_metric(figures_by_evidence(results), metric).factor
    rows = []
    for run in results["runs"]:
        for prediction in run["predictions"]:
            points = prediction.get("figures", {}).get(metric, {}).items()
            row = {"GPU": run["gpu"], "from": EVIDENCE[prediction["evidence"]]["label"]}
            row |= {f"{point} error, %": 100 * figures["error"] for point, figures in points}
            row["requests"] = prediction.get("missing") or str(prediction["requests"])
            for point, figures in points:
                row[f"{point} predicted"] = factor * figures["predicted"]
                row[f"{point} measured"] = factor * figures["measured"]
            rows.append(row)
    return pd.DataFrame(rows)


def evidence_sentence(name: str) -> str:
    """Return the origin of an evidence, its label, and what it is, as Markdown."""
    words = EVIDENCE[name]
    label = "" if words["label"] == words["origin"] else f", {words['label']}"
    return f"**{words['origin']}{label}**: {words['meaning']}"


def measurement_in_words(results: Results) -> str:
    """Return what was measured by others, when and under which conditions."""
    servers = [
        page_text("trust.gpu", named=", ".join(run["settings"]), **run) for run in results["runs"]
    ]
    kernels = [f"K{run['kernels'][1:]}. " for run in results["runs"] if run["kernels"]]
    texts = {"servers": "; ".join(servers), "kernels": "".join(kernels)}
    return page_text("trust.gpus", **texts, **results)
