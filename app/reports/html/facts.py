"""What a run was, in words: what ran, how it ended, and what it rests on."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from servetwin.app.figures import Look
from servetwin.app.reports.html.elements import Child, element
from servetwin.app.reports.report_folders import NamedRun
from servetwin.app.reports.run_words import (
    outside_warning,
    recorded_words,
    rests_line,
    without_paths,
)
from servetwin.app.reports.tables import counts_line, error_lines
from servetwin.app.words import slo_words
from servetwin.loadtest.report.prompt_cache import prompt_cache_line, prompt_cache_warning
from servetwin.loadtest.report.records import outage_lines
from servetwin.sim.records.metrics import SLO
from servetwin.sim.records.run import Run, RunKind
from servetwin.sim.records.steady_part import describe_steady

_DELIVERED = "client ok"


def facts(named: NamedRun, look: Look) -> ET.Element:
    """Return what a run was: what ran, how it ended, and what its figures rest on."""
    run = named.run
    summary = run.summary()
    lines = [
        what_ran(run),
        counts_line(summary["requests"]),
        *error_lines(map(without_paths, run.requests["error"].dropna())),
        *(_rests(summary) if run.kind == "simulation" else _delivered(summary)),
        *_prompts(run),
        describe_steady(summary["steady"]),
    ]
    parts = [element("div", line) if isinstance(line, str) else line for line in lines]
    return element("section", element("h3", swatch(look), named.name), *parts)


def swatch(look: Look) -> ET.Element:
    """Return the colour of a run beside its name."""
    return element("span", "\u25a0 ", style=f"color:{look.colour}", aria_hidden="true")


def slo_line(runs: Sequence[NamedRun], slo: SLO) -> str:
    """Return the share of the requests of each run within every limit, in a sentence."""
    summaries = [named.run.summary(slo) for named in runs]
    shares = [f"{summary['slo_attainment'] or 0.0:.1%}" for summary in summaries]
    met = f"SLO {slo_words(slo, '≤ ')} met by"
    if len(runs) == 1:
        goodput = summaries[0]["goodput_per_s"] or 0.0
        return f"{met} {shares[0]} of all scheduled requests, goodput {goodput:.4g} requests/s"
    each = (f"{share} ({named.name})" for share, named in zip(shares, runs, strict=True))
    return f"{met} {', '.join(each)} of all scheduled requests"


def about(runs: Sequence[NamedRun]) -> str:
    """Return what the runs have in common: the first in words, or their traces and sizes."""
    if len(runs) == 1:
        return what_ran(runs[0].run)
    traces = dict.fromkeys(
        str(named.run.scenario.get("trace", "an unnamed trace")) for named in runs
    )
    sizes = sorted({len(named.run.requests) for named in runs})
    requests = f"{sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else f"{sizes[0]}"
    return f"{len(runs)} runs, {requests} requests each, of {', '.join(traces)}"


def what_ran_short(kind: RunKind, scenario: Mapping[str, Any]) -> str:
    """Return ``simulation of continuous+paged``, ``load test of MODEL``, ``recorded by TOOL``."""
    if tool := scenario.get("recorded_by"):
        return f"recorded by {tool}"
    if kind == "loadtest":
        return f"load test of {scenario.get('endpoint', {}).get('model', 'an endpoint')}"
    policies = scenario.get("policies", {})
    names = [str(policies[key]) for key in ("batching", "kv") if key in policies]
    prefix = ["prefix"] if policies.get("prefix_cache") else []
    return f"simulation of {'+'.join([*names, *prefix]) or 'a server'}"


def what_ran(run: Run) -> str:
    """Return the server and the requests of a run, in words."""
    if "recorded_by" in run.scenario:
        return recorded_words(run)
    scenario, ran = run.scenario, what_ran_short(run.kind, run.scenario)
    trace = f"{len(run.requests)} requests of {scenario.get('trace', 'an unnamed trace')}"
    if run.kind == "loadtest":
        return f"{ran} at {scenario.get('endpoint', {}).get('base_url')}: {trace}"
    return f"{ran} on {_server(scenario)}: {trace}; seed {scenario.get('seed', 0)}"


def _server(scenario: Mapping[str, Any]) -> str:
    if model := scenario.get("model"):
        techniques, without = scenario.get("techniques") or (), scenario.get("without") or ()
        named = " with ".join([f"{model} on {scenario.get('hardware')}", *techniques])
        return " without ".join([named, *without])
    profiles = scenario.get("profile", "an unnamed profile")
    return ", ".join(profiles) if isinstance(profiles, list) else str(profiles)


def _rests(summary: Mapping[str, Any]) -> Iterator[Child]:
    if provenance := summary.get("provenance"):
        yield rests_line(provenance)
        if warning := outside_warning(provenance, widened=False):
            yield element("div", warning, class_="bad")


def _delivered(summary: Mapping[str, Any]) -> Iterator[Child]:
    """Return whether the load was delivered: without that, no figure of a load test can be read."""
    delivery = summary.get("delivered", {})
    lag_s, offered, sent = (delivery.get(k) for k in ("lag_p99_s", "offered_per_s", "sent_per_s"))
    yield (
        f"load delivered: offered {_rate(offered)}, sent {_rate(sent)}, lag p99 "
        f"{'-' if lag_s is None else f'{1e3 * lag_s:.3g} ms'}, "
        f"CPU {delivery.get('client_cpu_share', 0.0):.0%}"
    )
    if delivery.get("verdict") == _DELIVERED:
        yield element("div", _DELIVERED, class_="good")
    for line in _undelivered(delivery):
        yield element("div", line, class_="bad")


def doubts(run: Run) -> list[str]:
    """Return why the figures of a run cannot be taken as they stand."""
    summary = run.summary()
    provenance = summary.get("provenance")
    outside = outside_warning(provenance, widened=False) if provenance else None
    measured = run.kind == "loadtest"
    return [
        *filter(None, [outside]),
        *(_undelivered(summary.get("delivered", {})) if measured else ()),
    ]


def _undelivered(delivery: Mapping[str, Any]) -> Iterator[str]:
    """Return what was wrong with the client, the answers or the connection of a load test."""
    if (verdict := delivery.get("verdict", "unknown")) != _DELIVERED:
        limits = "; ".join(delivery.get("limited_by", ()))
        because = f": the latencies hold the client's own ({limits})" if limits else ""
        yield f"{verdict}{because}"
    yield from delivery.get("token_doubts", ())
    yield from outage_lines(delivery.get("outages", []))
    if stopped := delivery.get("stopped"):
        yield f"stopped early: {stopped}"


def _prompts(run: Run) -> Iterator[Child]:
    """Return what the server's prefix cache knew of the prompts."""
    found = run.extra.get("prompt_cache")
    if found:
        yield prompt_cache_line(found, run.meta["prompt_salt"])
        if warning := prompt_cache_warning(found):
            yield element("div", warning, class_="bad")


def _rate(per_s: float | None) -> str:
    return "-" if per_s is None else f"{per_s:.4g}/s"
