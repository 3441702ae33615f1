"""What a run was, in words: what ran, how it ended, what it rests on, and where."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from app.figures import Look
from app.html.elements import Child, element
from app.text.metric_labels import METRICS, slo_words
from app.text.provenance import outside_warning, rests_line
from app.text.report_folders import NamedRun
from app.text.tables import counts_line, error_lines
from app.text.trial_words import recorded_words
from loadtest.report.outages import outage_lines
from loadtest.report.prompt_cache import prompt_cache_line, prompt_cache_warning
from sim.records.metrics import SLO
from sim.records.run import Run, RunKind
from sim.records.steady_part import describe_steady


def facts(named: NamedRun, look: Look) -> ET.Element:
    """Return the part of a run in the opening of the page."""
    run = named.run
    summary = run.summary()
    lines = [
        what_ran(run),
        counts_line(summary["requests"]),
        *error_lines(run.requests["error"].dropna()),
        *(_rests(summary) if run.kind == "simulation" else _delivered(summary)),
        *_prompts(run),
        describe_steady(summary["steady"]),
        _made(run.meta),
        *(f"note: {note}" for note in run.scenario.get("notes", ())),
    ]
    parts = [element("div", line) if isinstance(line, str) else line for line in lines]
    return element("section", element("h3", swatch(look), named.name), *parts)


def swatch(look: Look) -> ET.Element:
    """Return the colour of a run beside its name."""
    return element("span", "\u25a0 ", style=f"color:{look.colour}", aria_hidden="true")


def slo_verdict(named: NamedRun, slo: SLO) -> ET.Element:
    """Return the share of requests within every limit, in words."""
    summary = named.run.summary(slo)
    met, goodput = summary["slo_attainment"] or 0.0, summary["goodput_per_s"] or 0.0
    share = f"{named.name}: SLO {slo_words(slo, '≤ ')} met by {met:.1%} of all scheduled requests"
    return element("p", f"{share}, goodput {goodput:.4g} requests/s")


def scenarios(runs: Sequence[NamedRun]) -> ET.Element:
    """Return what is needed to run each again, as YAML."""
    listed = []
    for named in runs:
        text = yaml.safe_dump(named.run.scenario, sort_keys=False, allow_unicode=True)
        listed.append(element("details", element("summary", named.name), element("pre", text)))
    return element("section", element("h2", "Scenarios"), *listed)


def glossary() -> ET.Element:
    """Return every metric with its definition."""
    pairs = [
        cell
        for metric in METRICS.values()
        for cell in (element("dt", metric.title), element("dd", metric.definition))
    ]
    note = "Latencies are of finished requests. Percentiles are numpy's linear estimator."
    listed = element("dl", *pairs)
    return element("section", element("h2", "Definitions"), listed, element("p", note))


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
    limits = "; ".join(delivery.get("limited_by", ()))
    verdict = delivery.get("verdict", "unknown")
    good = verdict == "client ok"
    because = f": the latencies hold the client's own ({limits})" if limits else ""
    yield element("div", f"{verdict}{because}", class_="good" if good else "bad")
    for line in (*delivery.get("token_doubts", ()), *outage_lines(delivery.get("outages", []))):
        yield element("div", line, class_="bad")
    if stopped := delivery.get("stopped"):
        yield element("div", f"stopped early: {stopped}", class_="bad")


def _prompts(run: Run) -> Iterator[Child]:
    """Return what the server's prefix cache knew of the prompts."""
    found = run.extra.get("prompt_cache")
    if found:
        yield prompt_cache_line(found, run.meta["prompt_salt"])
        if warning := prompt_cache_warning(found):
            yield element("div", warning, class_="bad")


def _made(meta: Mapping[str, Any]) -> ET.Element:
    if not meta:
        return element("div", "machine and version were not recorded", class_="quiet")
    where = f"{meta.get('processor') or 'unknown processor'}, {meta.get('cores', '?')} cores"
    made = f"servetwin {meta.get('servetwin', 'unknown')}, Python {meta.get('python', '?')}"
    return element("div", f"{made}, {where}, {meta.get('date', 'no date')}", class_="quiet")


def _rate(per_s: float | None) -> str:
    return "-" if per_s is None else f"{per_s:.4g}/s"
