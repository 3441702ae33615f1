"""Errors of a prediction as rows of a frame, in per cent, for tables and figures."""

from collections.abc import Sequence

import pandas as pd

from servetwin.app.reports.claims import metric_name
from servetwin.app.verdict.claims import MetricComparison


def error_rows(metrics: Sequence[MetricComparison]) -> pd.DataFrame:
    """Return the rows that ``errors_with_intervals`` draws, of measured metrics."""
    known = [row for row in metrics if row.predicted and row.measured]
    rows = [percents(row) for row in known]
    frame = pd.DataFrame(rows, columns=["error", "low", "high", "allowed"], dtype=float)
    return frame.assign(metric=[metric_name(row.metric) for row in known])


def percents(row: MetricComparison) -> list[float | None]:
    """Return the error, its interval and its limit in per cent."""
    shares = (row.error, row.error_low, row.error_high, row.limit)
    return [None if share is None else 100 * share for share in shares]
