"""The report of a comparison as plain text under 100 columns."""

import textwrap
from collections.abc import Iterable

from servetwin.app.verdict.claims import CAPACITY, Comparison, MetricComparison, RequestDifferences
from servetwin.app.verdict.gate import MORE_IS_BETTER, Gate, MetricChange
from servetwin.app.verdict.intervals import CONFIDENCE
from servetwin.sim.records.metrics import LATENCIES, describe, duration_unit
from servetwin.workloads.rows import counted

WIDTH = 100
"""Characters of a line."""
_LABELS = {
    "output_throughput_tokens_per_s": ("output throughput", "tokens/s", 1.0),
    "tpot_s": ("TPOT", "ms", 1e3),
    "ttft_s": ("TTFT", "ms", 1e3),
    "e2e_s": ("E2E latency", "ms", 1e3),
    CAPACITY: ("capacity", "/s", 1.0),
    "finished": ("finished", "%", 1e2),
}
LEGEND = f"""\
error = (predicted - measured) / measured, with its {CONFIDENCE:.0%} confidence interval
holds: the interval lies within +- limit; REFUTED: outside it, with the forecast's own interval
(low to high) as well; else the load tests cannot tell
TTFT = first token - scheduled; E2E = last token - scheduled
TPOT = (last token - first token) / (output tokens - tokens of the first chunk)
output throughput = output tokens of finished requests / (last token - first scheduled)"""


def render_comparison(comparison: Comparison) -> str:
    """Return one line per metric, the verdict, and the formulas."""
    lines = [comparison_table(comparison), "", *verdict_in_words(comparison), "", LEGEND]
    return "\n".join(lines)


def verdict_in_words(comparison: Comparison, noun: str = "load test") -> list[str]:
    """Return the verdict in a sentence, and what would help where the runs cannot tell.

    ``noun`` says what was measured.
    """
    runs = counted(comparison.repeats, noun)
    place = f"{runs} {'places' if comparison.repeats == 1 else 'place'}"
    match comparison.outcome:
        case "holds":
            said = [f"The prediction holds: {place} every judged error within its limit."]
        case "refuted":
            named = ", ".join(map(metric_name, comparison.named("refuted")))
            said = [f"The prediction is REFUTED: {place} the error of {named} out of limits."]
        case _ if comparison.doubts:
            said = [f"Cannot tell: {doubt}." for doubt in comparison.doubts]
        case _ if vague := comparison.vague:
            named = ", ".join(map(metric_name, vague))
            said = [
                f"Cannot tell: {place} the error of {named} out of limits, but the forecast "
                "itself (low to high) is too unsure to be refuted; more rounds of calibration, or "
                "a quieter machine, narrow it."
            ]
        case _:
            named = ", ".join(map(metric_name, comparison.named("cannot tell"))) or "every metric"
            said = [
                f"Cannot tell: after {runs} the interval of the error of {named} is neither within "
                f"the limit nor outside; more {noun}s, or longer ones, narrow it."
            ]
    if comparison.set_aside:
        aside = counted(comparison.set_aside, f"more {noun}")
        said.append(f"Set aside: {aside}, in which the client was limited.")
    return [line for sentence in said for line in textwrap.wrap(sentence, WIDTH)]


def metric_name(metric: str) -> str:
    """Return ``TTFT p90`` for ``ttft_s.p90``."""
    name, _, point = metric.partition(".")
    return f"{_LABELS[name][0]} {point}".rstrip()


def comparison_table(comparison: Comparison) -> str:
    """Return a line per metric: prediction, measurement, error, each with interval; limit."""
    head = (
        f"{'':18}{'unit':9}{'predicted':>9}{'low':>8}{'high':>8}{'measured':>9}"
        f"{'error':>7}{'from':>7}{'to':>7}{'limit':>6}"
    )
    return "\n".join([head, *(_line(row) for row in comparison.metrics)])


def render_requests(differences: RequestDifferences) -> str:
    """Return how far single requests are off, and how many are not matched."""
    frame, unmatched = differences.frame, differences.unmatched
    lines = [f"request by request: {len(frame)} matched, {len(unmatched)} not"]
    for name in LATENCIES:
        off = describe(frame[f"{name}_difference"].abs())
        if off["count"]:
            label = _LABELS[name][0]
            unit, scale = unit_of(name, (off[p] for p in ("p50", "p90", "max")))
            points = ", ".join(f"{p} {off[p] * scale:.2f}" for p in ("p50", "p90", "max"))  # type: ignore[operator]
            lines.append(f"  |{label} predicted - measured|, {unit}: {points}")
    reasons = [f"  not matched: {name} ({why})" for name, why in unmatched.items()]
    more = [f"  and {len(reasons) - 5} more"] if len(reasons) > 5 else []
    return "\n".join([*lines, *reasons[:5], *more])


def unit_of(metric: str, values: Iterable[float | None]) -> tuple[str, float]:
    """Return the unit in which values of a metric are shown, and the factor to it."""
    _, unit, scale = _LABELS[metric.partition(".")[0]]
    return duration_unit(values) if unit == "ms" else (unit, scale)


def predicted_figures(row: MetricComparison) -> tuple[float | None, float | None, float | None]:
    """Return the predicted figure and the ends of its interval; None for ends that are equal."""
    bounds = row.predicted
    if bounds is None:
        return None, None, None
    if bounds.low == bounds.high:
        return bounds.value, None, None
    return bounds.value, bounds.low, bounds.high


def _line(row: MetricComparison) -> str:
    predicted = predicted_figures(row)
    unit, scale = unit_of(row.metric, (predicted[0], row.measured))
    widths = zip((*predicted, row.measured), (9, 8, 8, 9), strict=True)
    figures = "".join(f"{figure_shown(value, scale):>{width}}" for value, width in widths)
    errors = (row.error, row.error_low, row.error_high)
    shares = "".join(f"{share_shown(value):>7}" for value in errors)
    limit = "-" if row.limit is None else f"{row.limit:.0%}"
    outcome = (row.outcome or "").replace("refuted", "REFUTED")
    return f"{metric_name(row.metric):18}{unit:9}{figures}{shares}{limit:>6} {outcome}".rstrip()


def figure_shown(value: float | None, scale: float) -> str:
    """Return a figure times ``scale``, with fewer decimals the larger it is."""
    if value is None:
        return "-"
    shown = value * scale
    return f"{shown:.{2 if shown < 1_000 else 1 if shown < 10_000 else 0}f}"


def share_shown(value: float | None) -> str:
    """Return per cent with a sign; without decimals from 100 % on, and no more than 999 %."""
    if value is None:
        return "-"
    return f"{100 * value:+.{1 if abs(value) < 1 else 0}f}%" if value < 10 else ">999%"


GATE_LEGEND = f"""\
change = (run - baseline) / baseline, with its {CONFIDENCE:.0%} confidence interval
holds: the whole interval is better than allowed; REFUTED: all of it is worse; else cannot tell
sees: the smallest change for the worse that runs like these would have refuted"""
ONE_BASELINE = (
    "one baseline: what the machine did between the runs is not seen; measure another baseline "
    "after them (A/B/A)"
)


def render_gate(gate: Gate) -> str:
    """Return one line per metric, the verdict, and what the columns mean."""
    return "\n".join([gate_table(gate), "", *gate_in_words(gate), "", GATE_LEGEND])


def gate_table(gate: Gate) -> str:
    """Return a line per metric: baseline, run, change with its interval, limit, power, outcome."""
    head = (
        f"{'':18}{'unit':9}{'baseline':>9}{'run':>9}{'change':>8}{'from':>8}{'to':>8}"
        f"{'allowed':>8}{'sees':>8}"
    )
    return "\n".join([head, *map(_change_line, gate.metrics)])


def gate_in_words(gate: Gate) -> list[str]:
    """Return the verdict in a sentence, and what would help where the runs cannot tell."""
    sides = f"{counted(gate.runs, 'run')} against {counted(gate.baselines, 'baseline')}"
    faster = ", ".join(metric_name(row.metric) for row in gate.metrics if row.faster)
    match gate.outcome:
        case "holds":
            said = [f"The gate holds: {sides}, no judged metric is worse than allowed."]
            said += [f"Better than the baseline: {faster}."] if faster else []
        case "refuted":
            named = ", ".join(map(metric_name, gate.named("refuted")))
            said = [f"The gate is REFUTED: {sides}, worse than allowed: {named}."]
        case _ if gate.doubts:
            said = [f"Cannot tell: {doubt}." for doubt in gate.doubts]
        case _:
            named = ", ".join(map(metric_name, gate.named("cannot tell"))) or "every metric"
            said = [
                f"Cannot tell: {sides}, the interval of the change of {named} has both what is "
                "allowed and what is not; more runs, or longer ones, narrow it."
            ]
    said += [f"Note: the endpoints were asked otherwise: {one}." for one in gate.differences]
    said += [f"Note: {ONE_BASELINE}."] if gate.baselines == 1 and gate.kind == "loadtest" else []
    return [line for sentence in said for line in textwrap.wrap(sentence, WIDTH)]


def _change_line(row: MetricChange) -> str:
    unit, scale = unit_of(row.metric, (row.baseline, row.run))
    sign = -1 if row.metric in MORE_IS_BETTER else 1
    allowed, sees = (
        value if value is None else sign * value for value in (row.limit, row.smallest)
    )
    figures = "".join(f"{figure_shown(value, scale):>9}" for value in (row.baseline, row.run))
    shares = "".join(f"{share_shown(v):>8}" for v in (row.change, row.low, row.high, allowed, sees))
    outcome = (row.outcome or "").replace("refuted", "REFUTED")
    faster = (", faster" if outcome else "faster") if row.faster else ""
    return f"{metric_name(row.metric):18}{unit:9}{figures}{shares} {outcome}{faster}".rstrip()
