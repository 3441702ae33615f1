"""The limits of a load test: an SLO (``ttft=500ms,tpot=50ms``), and conditions that fail it in CI.

A limit of the SLO is for single requests, of which a share must meet it; that of a percentile
(``ttft_p99=500ms``) is a condition. A condition (``failed>1%``, ``ttft_p99>500ms``, ``goodput<20``)
is a metric, a comparison and a limit. It fails where the figure is on the wrong side of its limit,
or is undefined: a load test without answers has no TTFT that could be good.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from servetwin.loadtest.options import duration_s
from servetwin.sim.records.metrics import (
    LIMITED,
    PERCENTILES,
    SLO,
    VISIBLE,
    describe,
    figure,
    gaps_s,
    measured,
)
from servetwin.sim.records.run import Run
from servetwin.workloads.errors import LoadTestError, did_you_mean
from servetwin.workloads.program.key_values import key_value
from servetwin.workloads.program.package import shipped_json
from servetwin.workloads.request import CANCELLED_BY_TEST

_EXAMPLE = "write for example failed>1%, ttft_p99>500ms or slo_attainment<99%"
_FORM = re.compile(r"([a-z][a-z0-9_.]*)\s*([<>])\s*(\d+\.?\d*|\.\d+)\s*([a-z%/]*)")
_STATISTICS = ("_mean", *(f"_p{q}" for q in PERCENTILES), "_max")
_TIME_UNITS = ("us", "ms", "s")


@dataclass(frozen=True, slots=True)
class _Quantity:
    """A kind of figure: its units on the command line, what is wrong with it, how it is shown."""

    units: Mapping[str, float]
    wrong: str
    shown_in: tuple[str, float]
    example: str


_QUANTITIES = [
    (of.pop("metrics"), _Quantity(**of)) for of in shipped_json("loadtest/report/quantities.json")
]
# The figure of a summary by metric.
_FIGURES: Mapping[str, str] = {
    metric: name for metrics, _ in _QUANTITIES for metric, name in metrics.items()
}
_TIMES = ("ttft", "ttfo", "tpot", "itl", "e2e")
# What a condition may be about; a time without a statistic is its mean.
METRICS: Mapping[str, _Quantity] = {
    metric + statistic: quantity
    for metrics, quantity in _QUANTITIES
    for metric in metrics
    for statistic in (("", *_STATISTICS) if metric in _TIMES else ("",))
}
NEEDS_SLO = ("slo_attainment", "goodput")


@dataclass(frozen=True, slots=True)
class FailCondition:
    """A condition as it was written, and its limit in seconds, as a share, or per second."""

    text: str
    metric: str
    limit: float

    @property
    def quantity(self) -> _Quantity:
        """The kind of its figure."""
        return METRICS[self.metric]


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition, the figure of a run (None: undefined), and whether it fails the run."""

    condition: str
    value: float | None
    limit: float
    failed: bool
    said: str
    """The figure and the limit, such as ``ttft_p99 312 ms (limit 500 ms)``."""


# What fails a load test where no condition is about its failures.
DEFAULT = FailCondition("failed>10%", "failed", 0.1)


# The share of the requests that must meet an SLO, unless another one is given.
WANTED = 0.99
_POINT = re.compile(r"[_.]p(\d+)\s*(?==)")
_OF_ALL = re.compile(r"\s*(failed|\w+[_.](mean|p\d+|max))\s*=")


def parse_thresholds(
    slo: str | None, fail_if: Sequence[str], attainment: float | None = None
) -> tuple[SLO | None, list[FailCondition]]:
    """Read what a load test must hold: limits of single requests, and conditions of all.

    Of single requests the share ``attainment`` must meet all limits, unless ``fail_if`` says more
    of them. Raises ``LoadTestError`` naming what cannot be read.
    """
    parts = slo.split(",") if slo is not None else []
    single = [part for part in parts if not _OF_ALL.match(part)]
    limits = parse_slo(",".join(single)) if single else None
    conditions = parse_conditions(fail_if, slo=limits is not None)
    if limits and not any(condition.metric in NEEDS_SLO for condition in conditions):
        share = WANTED if attainment is None else attainment
        text = f"slo_attainment<{100 * share:g}%"
        conditions.append(FailCondition(text, "slo_attainment", share))
    others = [part.replace("=", ">", 1) for part in parts if part not in single]
    return limits, [*conditions, *(_condition(part.strip(), "--slo", "=") for part in others)]


def parse_target(slo: str, attainment: float | None = None) -> tuple[SLO, float]:
    """Read the limits of a search and the share of the requests that must meet all of them.

    ``ttft_p99=500ms`` is ``ttft=500ms`` for 99 %. Raises ``LoadTestError`` for several shares.
    """
    points = _POINT.findall(slo)
    limits = parse_slo(_POINT.sub("", slo))
    if not points:
        return limits, WANTED if attainment is None else attainment
    share = int(points[0]) / 100
    if len({*points}) > 1 or len(points) < slo.count("=") or attainment or not 0 < share < 1:
        raise LoadTestError(
            f"--slo {slo!r}: a search has one share of the requests; give every limit the same "
            "percentile, or none and --attainment"
        )
    return limits, share


def parse_conditions(texts: Sequence[str], *, slo: bool) -> list[FailCondition]:
    """Read conditions, several also in one text; ``slo`` says whether limits are given.

    Without one about the failed requests, ``DEFAULT`` is added. Raises ``LoadTestError`` naming
    what cannot be read, and what would be right.
    """
    conditions = [_condition(part.strip()) for text in texts for part in text.split(",")]
    for condition in conditions:
        if condition.metric in NEEDS_SLO and not slo:
            raise LoadTestError(f"--fail-if {condition.text!r}: needs --slo, such as ttft=500ms")
    if any(condition.metric in ("failed", "finished") for condition in conditions):
        return conditions
    return [DEFAULT, *conditions]


def _condition(text: str, option: str = "--fail-if", sign: str = "") -> FailCondition:
    """Read a condition; ``sign`` is what stands in it, where that is not the comparison."""
    where = f"{option} {text.replace('>', sign) if sign else text!r}"
    match = _FORM.fullmatch(text.lower())
    if not match:
        raise LoadTestError(f"{where}: not METRIC>LIMIT or METRIC<LIMIT; {_EXAMPLE}")
    name, comparison, number, unit = match.groups()
    metric = name.replace(".", "_")
    if metric not in METRICS:
        raise LoadTestError(f"{where}: unknown metric {name!r}; {did_you_mean(metric, METRICS)}")
    quantity = METRICS[metric]
    right = f"{name}{sign or quantity.wrong}{quantity.example}"
    if comparison != quantity.wrong:
        raise LoadTestError(f"{where}: would fail what is good; write for example {right}")
    if unit not in quantity.units:
        known = " or ".join(filter(None, quantity.units))
        raise LoadTestError(f"{where}: a limit in {known} is needed; write for example {right}")
    limit = float(number) * quantity.units[unit]
    if not math.isfinite(limit) or (unit == "%" and limit > 1):
        raise LoadTestError(f"{where}: the limit is impossible; write for example {right}")
    return FailCondition(text, metric, limit)


def judge_conditions(
    conditions: Sequence[FailCondition], run: Run, slo: SLO | None = None
) -> list[Finding]:
    """Return what each condition finds in a run."""
    summary = run.summary(slo)
    if VISIBLE not in summary:  # the first token is visible
        conditions = [replace(c, metric=c.metric.replace("ttfo", "ttft")) for c in conditions]
    return [_finding(condition, _value(condition.metric, run, summary)) for condition in conditions]


def failed_line(findings: Sequence[Finding]) -> str | None:
    """Return which conditions failed, in one line; None where all hold."""
    return "; ".join(finding.said for finding in findings if finding.failed) or None


def _finding(condition: FailCondition, value: float | None) -> Finding:
    unit, scale = condition.quantity.shown_in
    if value is None:
        lacking = f"{condition.metric}: no request has it"
        return Finding(condition.text, None, condition.limit, True, lacking)
    failed = value > condition.limit if condition.quantity.wrong == ">" else value < condition.limit
    name = "requests within the SLO" if condition.metric == NEEDS_SLO[0] else condition.metric
    words = f"{name} {value * scale:.4g}{unit} (limit {condition.limit * scale:.4g}{unit})"
    return Finding(condition.text, value, condition.limit, failed, words)


def _value(metric: str, run: Run, summary: Mapping[str, Any]) -> float | None:
    name, _, statistic = metric.partition("_")
    if name == "itl":
        requests = measured(run.requests)
        finished = requests[requests["status"] == "finished"]
        return describe(gaps_s(finished["chunk_s"]))[statistic or "mean"]
    if name in _TIMES:
        return figure(summary, f"{_FIGURES[name]}.{statistic or 'mean'}")
    if metric in ("failed", "finished"):
        share = _finished_share(run)
        return 1 - share if metric == "failed" and share is not None else share
    return figure(summary, _FIGURES[metric])


def _finished_share(run: Run) -> float | None:
    """Return the share of the requests that finished, of those on which no client hung up."""
    requests = measured(run.requests)
    wanted = requests[requests["error"] != CANCELLED_BY_TEST]
    return float((wanted["status"] == "finished").mean()) if len(wanted) else None


_SLO_EXAMPLE = "write for example ttft=500ms,ttfo=2s,tpot=50ms,e2e=2s,task=120s"


def parse_slo(text: str) -> SLO:
    """Read the limits in ``text``: each at most once, each with its unit (us, ms, s).

    Raises ``LoadTestError`` naming the part that cannot be read.
    """
    limits: dict[str, float] = {}
    for part in text.split(","):
        where = f"--slo {part.strip()!r}"
        name, duration = key_value(part, "--slo", LoadTestError, f"LIMIT=TIME; {_SLO_EXAMPLE}")
        if f"{name}_s" not in LIMITED:
            raise LoadTestError(f"{where}: unknown limit {name!r}; {_SLO_EXAMPLE}")
        if f"{name}_s" in limits:
            raise LoadTestError(f"{where}: {name} is given twice; {_SLO_EXAMPLE}")
        limit_s = duration_s(duration, *_TIME_UNITS)
        if limit_s is None:
            raise LoadTestError(f"{where}: not a positive time with its unit; {_SLO_EXAMPLE}")
        limits[f"{name}_s"] = limit_s
    return SLO(**limits)
