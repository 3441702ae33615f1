"""A target in words: its limit, and a figure beside the limit."""

from math import isfinite

from servetwin.app.reports.metric_labels import METRICS, slo_words
from servetwin.sim.experiments.capacity import SLOTarget
from servetwin.sim.records.metrics import LATENCIES


def limited(target: SLOTarget) -> list[str]:
    """Return the latencies that have a limit."""
    return [name for name in LATENCIES if getattr(target.slo, name) is not None]


def target_words(target: SLOTarget) -> str:
    """Return ``p99 TTFT below 500 ms``; of several limits, the share."""
    share = f"{100 * target.attainment:g}"
    names = limited(target)
    if len(names) > 1:
        return f"{slo_words(target.slo)} for {share} % of the requests"
    limit = f"{METRICS[names[0]].scaled(getattr(target.slo, names[0])):g}"
    return f"p{share} {METRICS[names[0]].label} below {limit} {METRICS[names[0]].unit}"


def axis_title(target: SLOTarget) -> str:
    """Return what a factor on the limits stands for in ``scaled``."""
    names = limited(target)
    if len(names) > 1:
        return f"worst latency / its limit, p{100 * target.attainment:g}"
    return f"p{100 * target.attainment:g} {METRICS[names[0]].title}"


def scaled(target: SLOTarget, factor: float) -> float:
    """Return a factor on the limits as the latency itself, where there is but one limit."""
    names = limited(target)
    if len(names) > 1:
        return factor
    metric = METRICS[names[0]]
    return factor * metric.factor * float(getattr(target.slo, names[0]))


def figure_words(
    target: SLOTarget, factor: float, interval: tuple[float, float] | None = None
) -> str:
    """Return ``812 ms [700 to 1,020]``; of several limits, ``1.62 times a limit``."""
    if not isfinite(factor):
        return "too many are not answered"
    unit = "times a limit" if len(limited(target)) > 1 else METRICS[limited(target)[0]].unit
    ends = f" [{_ends(target, interval)}]" if interval else ""
    return f"{short(scaled(target, factor))} {unit}{ends}"


def short(value: float) -> str:
    """Return a number with three digits, whole from a hundred on."""
    if not isfinite(value):
        return "no end"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _ends(target: SLOTarget, interval: tuple[float, float]) -> str:
    return " to ".join(short(scaled(target, end)) for end in interval)
