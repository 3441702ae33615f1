"""The report of a comparison or a gate as plain text under 100 columns."""

from collections.abc import Iterable, Sequence

from servetwin.app.reports.table import table_lines, wrapped
from servetwin.app.verdict.claims import Comparison, MetricComparison, Outcome, RequestDifferences
from servetwin.app.verdict.gate import FINISHED, MORE_IS_BETTER, Gate, MetricChange
from servetwin.app.verdict.intervals import CONFIDENCE
from servetwin.app.words import METRICS, Metric, asset_table
from servetwin.sim.records.metrics import LATENCIES, describe
from servetwin.workloads.rows import counted

WORDS = asset_table("verdicts.yaml")
LEGEND = WORDS["comparison"]["legend"].format(CONFIDENCE)
GATE_LEGEND = WORDS["gate"]["legend"].format(CONFIDENCE)
_FINISHED = Metric("finished", "%", 100.0, "requests that finished / requests that were counted")
_HEADS = "unit", "predicted", "low", "high", "measured", "error", "from", "to", "limit", ""
_GATE_HEADS = "unit", "baseline", "run", "change", "from", "to", "allowed", "sees", ""
_POINTS = ("p50", "p90", "max")
_MOST_UNMATCHED = 5


def render_comparison(comparison: Comparison) -> str:
    """Return one line per metric, the verdict, and the formulas."""
    table = comparison_table(comparison.metrics)
    return "\n".join([*table, "", *verdict_in_words(comparison), "", LEGEND])


def render_gate(gate: Gate) -> str:
    """Return one line per metric, the verdict, and what the columns mean."""
    table = table_lines(["", *_GATE_HEADS], map(_change_row, gate.metrics), "<<>>>>>>><", gap=" ")
    return "\n".join([*table, "", *gate_in_words(gate), "", GATE_LEGEND])


def verdict_in_words(comparison: Comparison, noun: str = "load test") -> list[str]:
    """Return the verdict in a sentence, and what would help where the runs cannot tell.

    ``noun`` says what was measured.
    """
    runs = counted(comparison.repeats, noun)
    values = {"noun": noun, "runs": runs}
    values["place"] = f"{runs} {'places' if comparison.repeats == 1 else 'place'}"
    sentences = _sentences(comparison, "comparison", comparison.vague, values)
    if comparison.set_aside:
        aside = counted(comparison.set_aside, f"more {noun}")
        sentences.append(f"Set aside: {aside}, in which the client was limited.")
    return wrapped(sentences)


def gate_in_words(gate: Gate) -> list[str]:
    """Return the verdict in a sentence, and what would help where the runs cannot tell."""
    sides = f"{counted(gate.runs, 'run')} against {counted(gate.baselines, 'baseline')}"
    sentences = _sentences(gate, "gate", [], {"sides": sides})
    if gate.outcome == "holds" and (faster := [row.metric for row in gate.metrics if row.faster]):
        sentences.append(f"Better than the baseline: {_names(faster)}.")
    sentences += [f"Note: the endpoints were asked otherwise: {one}." for one in gate.differences]
    if gate.baselines == 1 and gate.kind == "loadtest":
        sentences.append(WORDS["gate"]["one baseline"])
    return wrapped(sentences)


def _sentences(
    judgement: Comparison | Gate, kind: str, vague: Sequence[str], values: dict[str, str]
) -> list[str]:
    outcome: str = judgement.outcome
    named = judgement.named(judgement.outcome)
    if outcome == "cannot tell" and judgement.doubts:
        return [f"Cannot tell: {doubt}." for doubt in judgement.doubts]
    if outcome == "cannot tell" and vague:
        outcome, named = "vague", [*vague]
    return [WORDS[kind][outcome].format(named=_names(named) or "every metric", **values)]


def _names(metrics: Iterable[str]) -> str:
    return ", ".join(map(metric_name, metrics))


def metric_name(metric: str) -> str:
    """Return ``TTFT p90`` for ``ttft_s.p90``."""
    return f"{fitting(metric).label} {metric.partition('.')[2]}".rstrip()


def fitting(metric: str, *values: float | None) -> Metric:
    """Return the metric of ``ttft_s.p90`` in the unit in which such values are shown."""
    name = metric.partition(".")[0]
    return _FINISHED if name == FINISHED else METRICS[name].fitting(values)


def outcome_word(outcome: Outcome | None, unknown: str = "") -> str:
    """Return an outcome as it is printed: a refutation in capitals."""
    return (outcome or unknown).replace("refuted", "REFUTED")


def comparison_table(metrics: Iterable[MetricComparison]) -> list[str]:
    """Return a line per metric: prediction, measurement, error, each with interval; limit."""
    return table_lines(["", *_HEADS], map(_row, metrics), "<<>>>>>>>><", gap=" ")


def _row(row: MetricComparison) -> list[str]:
    figures = (*predicted_figures(row), row.measured)
    metric = fitting(row.metric, figures[0], row.measured)
    return [
        metric_name(row.metric),
        metric.unit,
        *(_figure(value, metric) for value in figures),
        *map(_share, (row.error, row.error_low, row.error_high)),
        "-" if row.limit is None else f"{row.limit:.0%}",
        outcome_word(row.outcome),
    ]


def _change_row(row: MetricChange) -> list[str]:
    metric = fitting(row.metric, row.baseline, row.run)
    sign = -1 if row.metric in MORE_IS_BETTER else 1
    allowed, sees = (value and sign * value for value in (row.limit, row.smallest))
    return [
        metric_name(row.metric),
        metric.unit,
        *(_figure(value, metric) for value in (row.baseline, row.run)),
        *map(_share, (row.change, row.low, row.high, allowed, sees)),
        ", ".join(filter(None, [outcome_word(row.outcome), "faster" if row.faster else ""])),
    ]


def render_requests(differences: RequestDifferences) -> str:
    """Return how far single requests are off, and how many are not matched."""
    frame, unmatched = differences.frame, differences.unmatched
    lines = [f"request by request: {len(frame)} matched, {len(unmatched)} not"]
    for name in LATENCIES:
        off = describe(frame[f"{name}_difference"].abs())
        if off["count"]:
            metric = fitting(name, *(off[point] for point in _POINTS))
            points = ", ".join(f"{p} {metric.scaled(off[p]):.2f}" for p in _POINTS)
            lines.append(f"  |{metric.label} predicted - measured|, {metric.unit}: {points}")
    reasons = [f"  not matched: {name} ({why})" for name, why in unmatched.items()]
    more = len(reasons) - _MOST_UNMATCHED
    lines += [*reasons[:_MOST_UNMATCHED], *([f"  and {more} more"] if more > 0 else [])]
    return "\n".join(lines)


def predicted_figures(row: MetricComparison) -> tuple[float | None, float | None, float | None]:
    """Return the predicted figure and the ends of its interval; None for ends that are equal."""
    bounds = row.predicted
    if bounds is None:
        return None, None, None
    if bounds.low == bounds.high:
        return bounds.value, None, None
    return bounds.value, bounds.low, bounds.high


def _figure(value: float | None, metric: Metric) -> str:
    """Return a figure in the unit of its metric, with fewer decimals the larger it is."""
    shown = metric.scaled(value)
    if shown is None:
        return "-"
    return f"{shown:.{2 if shown < 1_000 else 1 if shown < 10_000 else 0}f}"


def _share(value: float | None) -> str:
    """Return per cent with a sign; without decimals from 100 % on, and no more than 999 %."""
    if value is None:
        return "-"
    return f"{100 * value:+.{1 if abs(value) < 1 else 0}f}%" if value < 10 else ">999%"
