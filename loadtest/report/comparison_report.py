"""The report of a comparison as plain text under 100 columns."""

from loadtest.report.comparison import (
    NOISE_MULTIPLE,
    Comparison,
    MetricComparison,
    RequestDifferences,
)
from sim.records.metrics import LATENCIES, describe

_LABELS = {
    "output_throughput_tokens_per_s": ("output throughput", "tokens/s", 1.0),
    "tpot_s": ("TPOT", "ms", 1e3),
    "ttft_s": ("TTFT", "ms", 1e3),
    "e2e_s": ("E2E latency", "ms", 1e3),
}
_VERDICTS = {True: "holds", False: "FAILS", None: ""}
LEGEND = f"""\
error = (predicted - measured) / measured; noise = (max - min) / mean of the repeats
holds: |error| <= limit, or <= {NOISE_MULTIPLE:g} x noise where that is more
TTFT = first token - scheduled; E2E = last token - scheduled
TPOT = (last token - first token) / (output tokens - tokens of the first chunk)
output throughput = output tokens of finished requests / (last token - first scheduled)"""


def render_comparison(comparison: Comparison) -> str:
    """Return one line per metric, the verdict, and the formulas."""
    verdict = "the prediction holds" if comparison.holds else "the prediction FAILS"
    runs = "1 run" if comparison.repeats == 1 else f"{comparison.repeats} runs"
    return "\n".join([comparison_table(comparison), "", f"{verdict} against {runs}", "", LEGEND])


def comparison_table(comparison: Comparison) -> str:
    """Return a line per metric: prediction with interval, measurement, error, noise, limit."""
    head = (
        f"{'':18}{'unit':9}{'predicted':>10}{'low':>10}{'high':>10}{'measured':>10}"
        f"{'error':>9}{'noise':>8}{'limit':>7}"
    )
    return "\n".join([head, *(_line(row) for row in comparison.metrics)])


def render_requests(differences: RequestDifferences) -> str:
    """Return how far single requests are off, and how many are not matched."""
    frame, unmatched = differences.frame, differences.unmatched
    lines = [f"request by request: {len(frame)} matched, {len(unmatched)} not"]
    for name in LATENCIES:
        off = describe(frame[f"{name}_difference"].abs())
        if off["count"]:
            label, unit, scale = _LABELS[name]
            points = ", ".join(f"{p} {off[p] * scale:.2f}" for p in ("p50", "p90", "max"))  # type: ignore[operator]
            lines.append(f"  |{label} predicted - measured|, {unit}: {points}")
    reasons = [f"  not matched: {name} ({why})" for name, why in unmatched.items()]
    more = [f"  and {len(reasons) - 5} more"] if len(reasons) > 5 else []
    return "\n".join([*lines, *reasons[:5], *more])


def _line(row: MetricComparison) -> str:
    name, _, point = row.metric.partition(".")
    label, unit, scale = _LABELS[name]
    bounds = row.predicted
    predicted = (bounds.value, bounds.low, bounds.high) if bounds else (None, None, None)
    figures = "".join(_figure(value, scale) for value in (*predicted, row.measured))
    shares = (
        f"{_share(row.error, '+.1%'):>9}{_share(row.noise, '.1%'):>8}{_share(row.limit, '.0%'):>7}"
    )
    return f"{f'{label} {point}':18}{unit:9}{figures}{shares}  {_VERDICTS[row.holds]}".rstrip()


def _figure(value: float | None, scale: float) -> str:
    return f"{'-' if value is None else f'{value * scale:.2f}':>10}"


def _share(value: float | None, form: str) -> str:
    return "-" if value is None else f"{value:{form}}"
