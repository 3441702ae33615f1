"""The metrics of a run in a row: value, interval, difference to a baseline."""

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace

import streamlit as st

from servetwin.app.dashboard.formatting import signed
from servetwin.app.dashboard.jobs.simulated_items import Summary
from servetwin.app.dashboard.scenario.controls import PAGE_CONTROLS
from servetwin.app.dashboard.simulations import SimulatedScenario, finished_replications
from servetwin.app.dashboard.widgets import control
from servetwin.app.words import METRICS, Metric, ends, short
from servetwin.sim.experiments.predict import Interval, difference, interval
from servetwin.sim.records.metrics import figure

_WIDTH_PX, _LATENCY_PX = 142, 106


@dataclass(frozen=True, slots=True)
class ShownMetric:
    """A figure that pages show: ``part`` (mean, p90 ...) of a metric, or the metric itself.

    ``longest`` is the longest value beside it, where that decides its unit.
    """

    metric: str
    part: str | None
    more_is_better: bool
    longest: float | None = None

    def beside(self, summaries: Iterable[Summary]) -> "ShownMetric":
        """Return the same in the unit in which its values in ``summaries`` are shown."""
        values = [value for s in summaries if (value := figure(s, self.path)) is not None]
        return replace(self, longest=max(values, default=None))

    @property
    def _words(self) -> Metric:
        return METRICS[self.metric].fitting([self.longest])

    @property
    def path(self) -> str:
        """Return the path that ``sim.records.metrics.figure`` takes."""
        return f"{self.metric}.{self.part}" if self.part else self.metric

    @property
    def label(self) -> str:
        """Return a label with its unit, such as ``TTFT p90, ms``."""
        metric = self._words
        label = f"{metric.label} {self.part}" if self.part else metric.label
        return f"{label}, {metric.unit}".replace("throughput, tokens", "tokens")

    def value(self, summary: Summary) -> float | None:
        """Return the value in the label's unit; None where it is undefined."""
        return self._words.scaled(figure(summary, self.path))

    def interval(self, summaries: Sequence[Summary]) -> Interval | None:
        """Return the 90 % interval over replications, in the label's unit; one has none."""
        return self._scaled(interval(summaries, self.path)) if len(summaries) > 1 else None

    def difference(self, a: Sequence[Summary], b: Sequence[Summary]) -> Interval | None:
        """Return the interval of b - a over pairs of replications; None where they are no pairs, or
        a single one."""
        return self._scaled(difference(a, b, self.path)) if len(a) == len(b) > 1 else None

    def _scaled(self, found: Interval | None) -> Interval | None:
        factor = self._words.factor
        return found and Interval(*(factor * bound for bound in astuple(found)))


# What can be shown of the latencies.
PARTS = PAGE_CONTROLS["latencies"].choices
DEFAULT_PARTS = ("p90", "p99")


def shown_metrics(parts: Sequence[str] = DEFAULT_PARTS) -> tuple[ShownMetric, ...]:
    """Return the metrics of a page, with these parts of the latencies."""
    return (
        *(ShownMetric(name, part, False) for name in ("ttft_s", "tpot_s") for part in parts),
        ShownMetric("output_throughput_tokens_per_s", None, True),
        ShownMetric("goodput_per_s", None, True),
        ShownMetric("slo_attainment", None, True),
    )


def chosen_metrics() -> tuple[ShownMetric, ...]:
    """Draw the reader's choice of figures, one for all pages, and return the metrics."""
    chosen = control("latencies", DEFAULT_PARTS)
    return shown_metrics([part for part in PARTS if part in chosen])


@dataclass(frozen=True, slots=True)
class ScenarioSummaries:
    """A scenario's summary, and the summaries of its replications, if these have run.

    ``varies`` is false where all replications would be equal: there are none.
    """

    summary: Summary
    replications: Sequence[Summary] = ()
    varies: bool = True


def summaries_so_far(outcome: SimulatedScenario) -> ScenarioSummaries:
    """Return the summary of a scenario, and those of its replications once all are there."""
    return ScenarioSummaries(
        outcome.summary, finished_replications(outcome), varies=outcome.is_drawn
    )


def metrics_row(
    metrics: Sequence[ShownMetric],
    now: ScenarioSummaries,
    baseline: ScenarioSummaries | None,
    unknown: str | None = None,
) -> None:
    """Draw one metric per column, each with its 90 % interval once there are replications, in as
    many rows as the window needs.

    ``unknown`` says why there is nothing to compare; it stands in place of the differences.
    """
    before = None if unknown else baseline
    sides = [now, *([before] if before else [])]
    with st.container(horizontal=True, gap="xsmall"):
        for shown in metrics:
            width_px = _LATENCY_PX if shown.part else _WIDTH_PX
            with st.container(width=width_px, gap="xxsmall"):
                _metric(shown.beside(side.summary for side in sides), now, before)
                if unknown:
                    st.caption(f"difference: {unknown}")


# What stands in the place of an interval where replications hardly differ.
ALIKE = "no variation"


def between(found: Interval) -> str:
    """Return the bounds of an interval, such as ``37.1 to 38.2``; or that they are alike."""
    shown = ends(found.low, found.high, short)
    return f"{shown[0]} to {shown[1]}" if shown else ALIKE


def excludes_zero(found: Interval) -> bool:
    """Return whether a difference has one sign: its 90 % interval, or its one value."""
    return not found.low <= 0 <= found.high


def _metric(shown: ShownMetric, now: ScenarioSummaries, baseline: ScenarioSummaries | None) -> None:
    value = shown.value(now.summary)
    base = shown.value(baseline.summary) if baseline else None
    paired = shown.difference(baseline.replications, now.replications) if baseline else None
    sure = paired is None or excludes_zero(paired)
    st.metric(
        shown.label,
        "-" if value is None else short(value),
        None if value is None or base is None else signed(value - base, base),
        delta_color=("normal" if shown.more_is_better else "inverse") if sure else "off",
        help=METRICS[shown.metric].definition,
    )
    if words := _interval_words(shown, now):
        st.caption(words)
    if paired and base is not None:
        st.caption(f"difference: {_paired_words(paired, base)}")


def _interval_words(shown: ShownMetric, now: ScenarioSummaries) -> str:
    """Return what stands below a value; nothing where replications are the same."""
    if not now.varies:
        return ""
    if not now.replications:
        return "..."
    bounds = shown.interval(now.replications)
    return between(bounds) if bounds else "undefined"


def _paired_words(paired: Interval, base: float) -> str:
    shown = ends(paired.low, paired.high, lambda bound: signed(bound, base))
    if shown is None:
        return ALIKE
    return f"{shown[0]} to {shown[1]}{'' if excludes_zero(paired) else ' (may be none)'}"
