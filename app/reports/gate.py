"""The report of a gate as plain text under 100 columns."""

import textwrap

from servetwin.app.reports.claims import (
    WIDTH,
    figure_shown,
    metric_name,
    share_shown,
    unit_of,
)
from servetwin.app.verdict.gate import MORE_IS_BETTER, Gate, MetricChange
from servetwin.app.verdict.intervals import CONFIDENCE
from servetwin.workloads.rows import counted

LEGEND = f"""\
change = (run - baseline) / baseline, with its {CONFIDENCE:.0%} confidence interval
holds: the whole interval is better than allowed; REFUTED: all of it is worse; else cannot tell
sees: the smallest change for the worse that runs like these would have refuted"""
ONE_BASELINE = (
    "one baseline: what the machine did between the runs is not seen; measure another baseline "
    "after them (A/B/A)"
)


def render_gate(gate: Gate) -> str:
    """Return one line per metric, the verdict, and what the columns mean."""
    return "\n".join([gate_table(gate), "", *gate_in_words(gate), "", LEGEND])


def gate_table(gate: Gate) -> str:
    """Return a line per metric: baseline, run, change with its interval, limit, power, outcome."""
    head = (
        f"{'':18}{'unit':9}{'baseline':>9}{'run':>9}{'change':>8}{'from':>8}{'to':>8}"
        f"{'allowed':>8}{'sees':>8}"
    )
    return "\n".join([head, *map(_line, gate.metrics)])


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


def _line(row: MetricChange) -> str:
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
