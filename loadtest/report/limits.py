"""The limits of a load test: an SLO (``ttft=500ms,tpot=50ms``), and conditions that fail it in CI.

A condition (``failed>1%``, ``ttft_p99>500ms``, ``goodput<20``) is a metric, a comparison and a
limit. It fails where the figure is on the wrong side of its limit, or is undefined: a load test
without answers has no TTFT that could be good.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from servetwin.loadtest.options import UNITS_S, duration_s
from servetwin.loadtest.report.records import gaps_s
from servetwin.sim.records.metrics import PERCENTILES, SLO, describe, figure, measured
from servetwin.sim.records.run import Run
from servetwin.workloads.errors import LoadTestError, did_you_mean
from servetwin.workloads.key_values import key_value
from servetwin.workloads.request import CANCELLED_BY_TEST

_EXAMPLE = "write for example failed>1%, ttft_p99>500ms or slo_attainment<99%"
_FORM = re.compile(r"([a-z][a-z0-9_.]*)\s*([<>])\s*(\d+\.?\d*|\.\d+)\s*([a-z%/]*)")
_STATISTICS = ("mean", *(f"p{q}" for q in PERCENTILES), "max")
_TIME_UNITS = ("us", "ms", "s")


@dataclass(frozen=True, slots=True)
class _Quantity:
    """A kind of figure: its units on the command line, what is wrong with it, how it is shown."""

    units: Mapping[str, float]
    wrong: str
    shown_in: tuple[str, float]
    example: str


_TIME = _Quantity({unit: UNITS_S[unit] for unit in _TIME_UNITS}, ">", (" ms", 1e3), "500ms")
_TOO_MANY = _Quantity({"%": 0.01}, ">", (" %", 100.0), "1%")
_TOO_FEW = _Quantity({"%": 0.01}, "<", (" %", 100.0), "99%")
_TOKEN_RATE = _Quantity({"": 1.0, "tokens/s": 1.0}, "<", (" tokens/s", 1.0), "1000tokens/s")
_REQUEST_RATE = _Quantity({"": 1.0, "/s": 1.0}, "<", ("/s", 1.0), "20/s")

_TIMES = ("ttft", "tpot", "itl", "e2e")
METRICS: Mapping[str, _Quantity] = {
    **dict.fromkeys(_TIMES, _TIME),
    **{f"{name}_{statistic}": _TIME for name in _TIMES for statistic in _STATISTICS},
    "failed": _TOO_MANY,
    "finished": _TOO_FEW,
    "slo_attainment": _TOO_FEW,
    "goodput": _REQUEST_RATE,
    "throughput": _TOKEN_RATE,
    "request_throughput": _REQUEST_RATE,
}
"""What a condition may be about; a time without a statistic is its mean."""
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
    """The figure and its distance to the limit, in words."""


DEFAULT = FailCondition("failed>10%", "failed", 0.1)
"""What fails a load test where no condition is about its failures."""


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


def _condition(text: str) -> FailCondition:
    where = f"--fail-if {text!r}"
    match = _FORM.fullmatch(text.lower())
    if not match:
        raise LoadTestError(f"{where}: not METRIC>LIMIT or METRIC<LIMIT; {_EXAMPLE}")
    name, comparison, number, unit = match.groups()
    metric = name.replace(".", "_")
    if metric not in METRICS:
        raise LoadTestError(f"{where}: unknown metric {name!r}; {did_you_mean(metric, METRICS)}")
    quantity = METRICS[metric]
    right = f"{name}{quantity.wrong}{quantity.example}"
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
    return [_finding(condition, _value(condition.metric, run, summary)) for condition in conditions]


def failed_line(findings: Sequence[Finding]) -> str | None:
    """Return which conditions failed and by how much, in one line; None where all hold."""
    failed = [finding for finding in findings if finding.failed]
    details = "; ".join(f"{finding.condition}: {finding.said}" for finding in failed)
    return f"failed by {details}" if failed else None


def _finding(condition: FailCondition, value: float | None) -> Finding:
    unit, scale = condition.quantity.shown_in
    if value is None:
        return Finding(condition.text, None, condition.limit, True, "no request has the figure")
    over = value - condition.limit if condition.quantity.wrong == ">" else condition.limit - value
    beyond = "over" if (over > 0) == (condition.quantity.wrong == ">") else "below"
    distance = f"it is {value * scale:.4g}{unit}, {abs(over) * scale:.3g}{unit} {beyond} the limit"
    return Finding(condition.text, value, condition.limit, over > 0, distance)


_KEYS = {
    "slo_attainment": "slo_attainment",
    "goodput": "goodput_per_s",
    "throughput": "output_throughput_tokens_per_s",
    "request_throughput": "request_throughput_per_s",
}
"""The figures of a summary that are neither times nor shares of the requests."""


def _value(metric: str, run: Run, summary: Mapping[str, Any]) -> float | None:
    name, _, statistic = metric.partition("_")
    if name == "itl":
        requests = measured(run.requests)
        finished = requests[requests["status"] == "finished"]
        return describe(gaps_s(finished["chunk_s"]))[statistic or "mean"]
    if name in _TIMES:
        return figure(summary, f"{name}_s.{statistic or 'mean'}")
    if metric in ("failed", "finished"):
        share = _finished_share(run)
        return 1 - share if metric == "failed" and share is not None else share
    return figure(summary, _KEYS[metric])


def _finished_share(run: Run) -> float | None:
    """Return the share of the requests that finished, of those on which no client hung up."""
    requests = measured(run.requests)
    wanted = requests[requests["error"] != CANCELLED_BY_TEST]
    return float((wanted["status"] == "finished").mean()) if len(wanted) else None


_SLO_EXAMPLE = "write for example ttft=500ms,tpot=50ms,e2e=2s"


def parse_slo(text: str) -> SLO:
    """Read the limits in ``text``: each at most once, each with its unit (us, ms, s).

    Raises ``LoadTestError`` naming the part that cannot be read.
    """
    limits: dict[str, float] = {}
    for part in text.split(","):
        where = f"--slo {part.strip()!r}"
        name, duration = key_value(part, "--slo", LoadTestError, f"LIMIT=TIME; {_SLO_EXAMPLE}")
        if name not in ("ttft", "tpot", "e2e"):
            raise LoadTestError(f"{where}: unknown limit {name!r}; {_SLO_EXAMPLE}")
        if f"{name}_s" in limits:
            raise LoadTestError(f"{where}: {name} is given twice; {_SLO_EXAMPLE}")
        limit_s = duration_s(duration, *_TIME_UNITS)
        if limit_s is None:
            raise LoadTestError(f"{where}: not a positive time with its unit; {_SLO_EXAMPLE}")
        limits[f"{name}_s"] = limit_s
    return SLO(**limits)
