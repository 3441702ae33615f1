"""A capacity in words and as JSON."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from servetwin.app.reports.table import table_lines
from servetwin.app.reports.tables import note_lines, scenario_lines
from servetwin.app.scenario.options.policy import ScenarioOptions
from servetwin.app.scenario.scenarios import scenario_record
from servetwin.app.words import METRICS, RESOURCES, ends, origin_words, slo_words
from servetwin.sim.experiments.capacity import CONFIDENCE, Capacity, SLOTarget, TriedRate
from servetwin.sim.experiments.predict import Interval
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.records.metrics import LATENCIES, figure
from servetwin.workloads.trace import Trace

_LABELS = {**{name: METRICS[name].label for name in LATENCIES}, "saturation": "saturation"}
_FEW = 10


def report_lines(
    found: Capacity,
    target: SLOTarget,
    trace: Trace,
    scenario: Scenario,
    record: Mapping[str, Any],
) -> list[str]:
    """Return the lines that ``servetwin capacity`` prints.

    ``record`` is what ``scenario.yaml`` says of the servers.
    """
    each = f"; {found.per_server_per_s:.4g} per replica" if found.servers > 1 else ""
    return [
        *scenario_lines(trace.source, scenario, record),
        *note_lines(trace.notes),
        f"SLO {slo_words(target.slo)} for {100 * target.attainment:g} % of {len(trace)} requests",
        "",
        f"capacity    {_rate(found.rate_per_s, found.replications)}{each}",
        f"saturation  {_rate(found.saturation_per_s, found.replications)}",
        f"limited by  {_limit_words(found)}",
        f"resource    {_resource_words(found)}",
        "",
        *_table(found, target),
        "",
        *_closing_lines(found, target, len(trace), scenario),
    ]


def as_json(
    found: Capacity, target: SLOTarget, trace: Trace, scenario: Scenario, options: ScenarioOptions
) -> str:
    """Return the report as JSON; rates in requests per second."""
    return json.dumps(
        {
            "capacity_per_s": _interval_dict(found.rate_per_s, found.replications),
            "capacity_per_server_per_s": found.per_server_per_s,
            "saturation_per_s": _interval_dict(found.saturation_per_s, found.replications),
            "limited_by": found.limit,
            "limiting_resource": {
                "name": found.limiting.resource,
                "words": RESOURCES[found.limiting.resource],
                "share_of_waiting": found.limiting.share_of_waiting,
            },
            "servers": found.servers,
            "replications": found.replications,
            "slo": {**asdict(target.slo), "attainment": target.attainment},
            "tried": [_tried_dict(tried) for tried in found.tried],
            **scenario_record(trace, scenario, options.servers.record(), options.trace.seed),
        }
    )


def _rate(rate: Interval, replications: int) -> str:
    text = f"{rate.value:.4g} requests/s"
    shown = ends(rate.low, rate.high, lambda end: f"{end:.4g}") if replications > 1 else None
    return text + (f", {100 * CONFIDENCE:g} %: {shown[0]} to {shown[1]}" if shown else "")


def _limit_words(found: Capacity) -> str:
    if found.missed is None:
        return "saturation: the SLO holds up to there; above it the queue grows without end"
    shares = {n: 100 * share for n, share in found.missed.shares.items() if n != "all"}
    words = ", ".join(f"{share:.2f} % keep {_LABELS[name]}" for name, share in shares.items())
    return f"{_LABELS[found.limit]}: at {found.missed.rate_per_s:.4g} requests/s {words}"


def _resource_words(found: Capacity) -> str:
    share, words = found.limiting.share_of_waiting, RESOURCES[found.limiting.resource]
    return words if share is None else f"{words}: {100 * share:.0f} % of the waiting is for it"


def _table(found: Capacity, target: SLOTarget) -> list[str]:
    """Return a row per simulated rate; those that miss the SLO have a star."""
    metrics = {
        name: METRICS[name].fitting(figure(tried.summary, f"{name}.p99") for tried in found.tried)
        for name in ("ttft_s", "tpot_s")
    }
    latencies = (f"{metric.label} p99 {metric.unit}" for metric in metrics.values())
    rows = [
        [
            _number(tried.rate_per_s),
            f"{100 * tried.shares['all']:.2f} %",
            *(
                _number(metric.scaled(figure(tried.summary, f"{name}.p99")))
                for name, metric in metrics.items()
            ),
            _number(tried.summary["goodput_per_s"]),
            "" if tried.shares["all"] >= target.attainment else "*",
        ]
        for tried in found.tried
    ]
    return table_lines(["requests/s", "within SLO", *latencies, "goodput/s", ""], rows, ">")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _closing_lines(
    found: Capacity, target: SLOTarget, requests: int, scenario: Scenario
) -> list[str]:
    lines = ["* the SLO is missed; this table has the fitted step times"]
    if (may_miss := (1 - target.attainment) * requests) < _FEW:
        lines.append(
            f"only {may_miss:.0f} of {requests} requests may miss the SLO, so single ones decide: "
            "take a longer trace"
        )
    if found.replications < 2:
        lines.append("no interval" + ("" if found.rate_per_s.value == 0 else ": --replications 10"))
    elif scenario.is_repeatable():
        lines.append(
            "the interval is for other traffic of this kind; the error of step times "
            f"{origin_words(scenario.origins)} is unknown"
        )
    else:
        lines.append("interval: other traffic of this kind, and the known error of the step times")
    return lines


def _interval_dict(rate: Interval, replications: int) -> dict[str, float]:
    ends = {"low": rate.low, "high": rate.high, "confidence": CONFIDENCE}
    return {"value": rate.value, **(ends if replications > 1 else {})}


def _tried_dict(tried: TriedRate) -> dict[str, Any]:
    figures = ("ttft_s", "tpot_s", "e2e_s", "goodput_per_s", "output_throughput_tokens_per_s")
    shares = {name: share for name, share in tried.shares.items() if name != "all"}
    return {
        "rate_per_s": tried.rate_per_s,
        "slo_attainment": tried.shares["all"],
        "within": shares,
        **{name: tried.summary[name] for name in figures},
    }
