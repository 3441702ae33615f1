"""A capacity in words and as JSON."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from servetwin.app.reports.table import table_lines
from servetwin.app.reports.tables import note_lines, scenario_lines
from servetwin.app.scenario.options.policy import ScenarioOptions
from servetwin.app.scenario.scenarios import scenario_record
from servetwin.app.words import METRICS, RESOURCES, ends, number, origin_words, slo_words
from servetwin.sim.experiments.capacity import CONFIDENCE, Capacity, SLOTarget, TriedRate
from servetwin.sim.experiments.predict import Interval
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.records.metrics import LATENCIES, figure
from servetwin.workloads.trace import Trace

_LABELS = {**{name: METRICS[name].label for name in LATENCIES}, "saturation": "saturation"}
_FEW = 10


def report_lines(
    capacity: Capacity,
    target: SLOTarget,
    trace: Trace,
    scenario: Scenario,
    record: Mapping[str, Any],
) -> list[str]:
    """Return the lines that ``servetwin capacity`` prints.

    ``record`` is what ``scenario.yaml`` says of the servers.
    """
    each = f"; {capacity.per_server_per_s:.4g} per replica" if capacity.servers > 1 else ""
    return [
        *scenario_lines(trace.source, scenario, record),
        *note_lines(trace.notes),
        f"SLO {slo_words(target.slo)} for {100 * target.attainment:g} % of {len(trace)} requests",
        "",
        f"capacity    {_rate(capacity.rate_per_s, capacity.replications)}{each}",
        f"saturation  {_rate(capacity.saturation_per_s, capacity.replications)}",
        f"limited by  {_limit_words(capacity, target.attainment)}",
        f"resource    {_resource_words(capacity)}",
        "",
        *_table(capacity, target),
        "",
        *_closing_lines(capacity, target, len(trace), scenario),
    ]


def as_json(
    capacity: Capacity,
    target: SLOTarget,
    trace: Trace,
    scenario: Scenario,
    options: ScenarioOptions,
) -> str:
    """Return the report as JSON; rates in requests per second."""
    return json.dumps(
        {
            "capacity_per_s": _interval_dict(capacity.rate_per_s, capacity.replications),
            "capacity_per_server_per_s": capacity.per_server_per_s,
            "saturation_per_s": _interval_dict(capacity.saturation_per_s, capacity.replications),
            "limited_by": capacity.limit,
            "limiting_resource": {
                "name": capacity.limiting.resource,
                "words": RESOURCES[capacity.limiting.resource],
                "share_of_waiting": capacity.limiting.share_of_waiting,
            },
            "servers": capacity.servers,
            "replications": capacity.replications,
            "slo": {**asdict(target.slo), "attainment": target.attainment},
            "tried": [_tried_dict(tried) for tried in capacity.tried],
            **scenario_record(trace, scenario, options.servers.record(), options.trace.seed),
        }
    )


def _rate(rate: Interval, replications: int) -> str:
    text = f"{rate.value:.4g} requests/s"
    shown = ends(rate.low, rate.high, lambda end: f"{end:.4g}") if replications > 1 else None
    return text + (f", {100 * CONFIDENCE:g} %: {shown[0]} to {shown[1]}" if shown else "")


def _limit_words(capacity: Capacity, wanted: float) -> str:
    if capacity.missed is None:
        return "saturation: the SLO holds up to it; above, the queue grows without bound"
    shares = {n: 100 * share for n, share in capacity.missed.shares.items() if n != "all"}
    each = ", ".join(f"{_LABELS[name]} {share:.2f} %" for name, share in shares.items())
    both = "" if len(shares) == 1 else f"{100 * capacity.missed.shares['all']:.2f} % meet all: "
    rate = f"{capacity.missed.rate_per_s:.4g}/s"
    return f"{_LABELS[capacity.limit]}: at {rate} only {both}{each} ({100 * wanted:g} % required)"


def _resource_words(capacity: Capacity) -> str:
    share, words = capacity.limiting.share_of_waiting, RESOURCES[capacity.limiting.resource]
    return words if share is None else f"{words}: {100 * share:.0f} % of waiting time is due to it"


def _table(capacity: Capacity, target: SLOTarget) -> list[str]:
    """Return a row per simulated rate; those that miss the SLO have a star."""
    heads, latencies = [], []
    for name in ("ttft_s", "tpot_s"):
        values_s = [figure(tried.summary, f"{name}.p99") for tried in capacity.tried]
        metric = METRICS[name].fitting(values_s)
        heads.append(f"{metric.label} p99 {metric.unit}")
        latencies.append([number(value_s, metric.factor) for value_s in values_s])
    rows = [
        [
            number(tried.rate_per_s, 1.0),
            f"{100 * tried.shares['all']:.2f} %",
            *of_rate,
            number(tried.summary["goodput_per_s"], 1.0),
            "" if tried.shares["all"] >= target.attainment else "*",
        ]
        for tried, *of_rate in zip(capacity.tried, *latencies, strict=True)
    ]
    return table_lines(["requests/s", "within SLO", *heads, "goodput/s", ""], rows, ">")


def _closing_lines(
    capacity: Capacity, target: SLOTarget, requests: int, scenario: Scenario
) -> list[str]:
    lines = ["* misses the SLO; the table uses the fitted step times without noise"]
    if (may_miss := (1 - target.attainment) * requests) < _FEW:
        lines.append(
            f"only {may_miss:.0f} of {requests} requests may miss the SLO, so a few decide: "
            "use a longer trace"
        )
    if capacity.replications < 2:
        advice = "; --replications 10 gives one" if capacity.rate_per_s.value else ""
        lines.append(f"no interval{advice}")
    elif scenario.is_repeatable():
        lines.append(
            "the interval covers resampled traffic; the error of step times "
            f"{origin_words(scenario.origins)} is unknown"
        )
    else:
        lines.append("interval: resampled traffic, and the known error of the step times")
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
