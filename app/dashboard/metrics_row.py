"""The figures of a run beside each other: value, interval, difference to a baseline."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import streamlit as st

from app.dashboard.simulated import Summary
from app.metric_words import METRICS
from sim.metrics import figure
from sim.predict import interval

Better = Literal["less", "more"]


@dataclass(frozen=True, slots=True)
class Shown:
    """A figure of a summary: ``part`` (mean, p90 ...) of a metric, or the metric itself."""

    metric: str
    part: str | None
    better: Better

    @property
    def path(self) -> str:
        """As ``sim.metrics.figure`` wants it."""
        return f"{self.metric}.{self.part}" if self.part else self.metric

    @property
    def label(self) -> str:
        """``TTFT, p90``."""
        label = METRICS[self.metric].label
        return f"{label}, {self.part}" if self.part else label


SHOWN = (
    Shown("ttft_s", "p90", "less"),
    Shown("tpot_s", "p90", "less"),
    Shown("output_throughput_tokens_per_s", None, "more"),
    Shown("goodput_per_s", None, "more"),
    Shown("slo_attainment", None, "more"),
)


def metrics_row(
    summary: Summary, baseline: Summary | None, summaries: Sequence[Summary] = ()
) -> None:
    """One metric per column; below each its 90 % interval, once there are ``summaries``."""
    for column, shown in zip(st.columns(len(SHOWN)), SHOWN, strict=True):
        with column:
            _metric(shown, summary, baseline, summaries)


def _metric(
    shown: Shown, summary: Summary, baseline: Summary | None, summaries: Sequence[Summary]
) -> None:
    metric = METRICS[shown.metric]
    value = figure(summary, shown.path)
    base = figure(baseline, shown.path) if baseline else None
    st.metric(
        shown.label,
        "-" if value is None else f"{_number(value * metric.factor)} {metric.unit}",
        None if value is None or base is None else _delta(value, base, metric.factor, metric.unit),
        delta_color="inverse" if shown.better == "less" else "normal",
        help=metric.definition,
    )
    found = interval(summaries, shown.path)
    if found is None:
        st.caption("interval ..." if not summaries else "the same in every replication")
    else:
        low, high = (_number(x * metric.factor) for x in (found.low, found.high))
        st.caption(f"90 % interval {low} to {high}")


def _delta(value: float, base: float, factor: float, unit: str) -> str:
    return f"{'+' if value >= base else '-'}{_number(abs(value - base) * factor)} {unit}"


def _number(value: float) -> str:
    """Three digits that count."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
