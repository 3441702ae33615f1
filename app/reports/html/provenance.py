"""What is folded at the end of a report: notes, versions, scenarios, definitions."""

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import Any

import yaml

from servetwin.app.reports.html.elements import Child, element, folded, table
from servetwin.app.reports.report_folders import NamedRun
from servetwin.app.words import METRICS

_UNKNOWN = "not recorded"


def provenance(runs: Sequence[NamedRun]) -> ET.Element:
    """Return all that is needed to check a report, and to run it again."""
    parts = [*_notes(runs), _versions(runs), _scenarios(runs), _definitions()]
    title = element("h2", "To check it, and to run it again")
    return element("section", title, element("p", _made_by(runs)), *parts)


def _made_by(runs: Sequence[NamedRun]) -> str:
    """Return the versions that made the runs, and the first and the last day."""
    versions = {str(named.run.meta.get("servetwin") or _UNKNOWN): None for named in runs}
    days = sorted({str(named.run.meta["date"])[:10] for named in runs if "date" in named.run.meta})
    ends = dict.fromkeys([*days[:1], *days[-1:]])
    return ", ".join(["servetwin " + " and ".join(versions), *filter(None, [" to ".join(ends)])])


def _notes(runs: Sequence[NamedRun]) -> list[ET.Element]:
    """Return the notes, each once; with the names of its runs where others lack it."""
    of: dict[str, list[str]] = {}
    for named in runs:
        for note in named.run.scenario.get("notes") or ():
            of.setdefault(str(note), []).append(named.name)
    if not of:
        return []
    listed = [
        element("li", note, f" ({', '.join(names)})" if len(names) < len(runs) else None)
        for note, names in of.items()
    ]
    return [folded(f"Notes ({len(of)})", element("ul", *listed))]


def _versions(runs: Sequence[NamedRun]) -> ET.Element:
    rows = ([named.name, *_made(named.run.meta)] for named in runs)
    head = ["run", "servetwin", "Python", "processor", "cores", "date"]
    return folded("Versions and machines", table(head, rows))


def _made(meta: dict[str, Any]) -> list[Child]:
    keys = ("servetwin", "python", "processor", "cores", "date")
    return [str(meta.get(key) or _UNKNOWN) for key in keys]


def _scenarios(runs: Sequence[NamedRun]) -> ET.Element:
    """Return what is needed to run each again, as YAML."""
    listed = []
    for named in runs:
        text = yaml.safe_dump(named.run.scenario, sort_keys=False, allow_unicode=True)
        listed += [element("h3", named.name), element("pre", text)]
    return folded("Scenarios", *listed)


def _definitions() -> ET.Element:
    """Return every metric with its definition."""
    pairs = [
        cell
        for metric in METRICS.values()
        for cell in (element("dt", metric.title), element("dd", metric.definition))
    ]
    note = "Latencies are of finished requests. Percentiles are numpy's linear estimator."
    return folded("Definitions", element("dl", *pairs), element("p", note))
