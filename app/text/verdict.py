"""The verdict of a verification: predicted, measured, error, noise floor, in words and tables."""

import json
from collections.abc import Sequence

from app.twin.verification import Verification
from loadtest.report.comparison import MetricComparison
from loadtest.report.comparison_report import comparison_table


def verdict_lines(found: Verification) -> list[str]:
    """One verification: what ran, the table, the decision_check of the batches, the verdict."""
    fit = next(iter(found.profile.layouts.values()))
    span = f"{len(found.trace)} requests at {found.trace.rate_per_s:.2f}/s"
    return [
        "",
        f"{found.config.name}: {span} (capacity {found.capacity_per_s:.2f}/s), "
        f"{len(found.measured)} load tests",
        f"calibration: {fit.steps} steps, held-out error {100 * (fit.held_out_error or 0):.1f} %, "
        f"drift between rounds {100 * fit.drift:.1f} %",
        comparison_table(found.comparison),
        f"batches: given the engine's own step times, the simulator decides "
        f"{found.decision_check.agreeing} of {found.decision_check.steps} steps identically",
        f"client: {', '.join(run.extra['delivered']['verdict'] for run in found.measured)}",
        "VERDICT: the prediction holds" if found.comparison.holds else _failure_line(found),
    ]


def summary_table(found: Sequence[Verification]) -> list[str]:
    """All verifications, one line per policy: error and noise floor of the judged metrics."""
    header = f"{'policy':<32}" + "".join(
        f"{name:>16}" for name in ("throughput", "TPOT mean", "TTFT mean", "TTFT p90")
    )
    lines = ["", "error (noise floor), per cent", header]
    for one in found:
        judged = [row for row in one.comparison.metrics if row.limit is not None]
        cells = "".join(f"{_cell(row):>16}" for row in judged)
        lines.append(f"{one.config.name:<32}{cells}  {'ok' if one.comparison.holds else 'FAILED'}")
    return lines


def as_json(found: Sequence[Verification]) -> str:
    """The verifications as one JSON object."""
    return json.dumps({"verifications": [one.as_dict() for one in found]})


def _cell(row: MetricComparison) -> str:
    if row.error is None:
        return "-"
    noise = "-" if row.noise is None else f"{100 * row.noise:.1f}"
    return f"{100 * row.error:+.1f} ({noise})"


def _failure_line(found: Verification) -> str:
    failed = [row.metric for row in found.comparison.metrics if row.holds is False]
    return f"VERDICT: the prediction FAILED on {', '.join(failed)}"
