"""A distribution in one line of text: how many values lie where, between the least and the most."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from servetwin.app.reports.metric_labels import METRICS

FloatArray = npt.NDArray[np.float64]

WIDTH = 50
_LEVELS = " ▁▂▃▄▅▆▇█"
_LOG_FROM = 20.0
"""A range of this ratio or more is divided by ratios, or the tail would hide the rest."""


def sparkline(values: pd.Series, width: int = WIDTH) -> str:
    """Draw the counts of the defined values in ``width`` equal parts of their range, as blocks.

    Any value shows at least the lowest block. The range is divided into equal ratios where the
    largest value is at least 20 times the least.
    """
    defined = values.to_numpy(dtype=float)
    defined = defined[np.isfinite(defined)]
    if not len(defined):
        return ""
    counts = _counts(np.log(defined) if _is_wide(defined) else defined, width)
    levels = np.ceil(counts / counts.max() * (len(_LEVELS) - 1)).astype(int)
    return "".join(_LEVELS[level] for level in levels)


def sparkline_lines(requests: pd.DataFrame) -> list[str]:
    """Draw TTFT, TPOT and E2E latency of finished requests, a line each: least, blocks, most."""
    finished = requests[requests["status"] == "finished"]
    lines = [_line(name, finished[name]) for name in ("ttft_s", "tpot_s", "e2e_s")]
    return [line for line in lines if line]


def _line(name: str, values: pd.Series) -> str:
    metric = METRICS[name].fitting([values.max()])
    scaled = values.dropna() * metric.factor
    if scaled.empty:
        return ""
    scale = " (log)" if _is_wide(scaled.to_numpy(dtype=float)) else ""
    ends = (f"{scaled.min():.4g}", f"{scaled.max():.4g}")
    return f"{f'{metric.label} {metric.unit}':<16}{ends[0]:>9} {sparkline(scaled)} {ends[1]}{scale}"


def _counts(values: FloatArray, width: int) -> npt.NDArray[np.int64]:
    """Count the values in each of ``width`` parts; all are in the first where they are nearly
    equal."""
    least, span = values.min(), np.ptp(values)
    if span <= 1e-9 * np.abs(values).max():
        return np.bincount([0], [len(values)], width).astype(int)
    places = ((values - least) / span * width).astype(int)
    return np.bincount(places.clip(max=width - 1), minlength=width)


def _is_wide(defined: FloatArray) -> bool:
    return bool(defined.min() > 0 and defined.max() >= _LOG_FROM * defined.min())
