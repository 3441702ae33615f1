"""What runs were, for a page: what ran, how it ended, what its figures rest on, and doubts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from servetwin.app.reports import run_words
from servetwin.app.reports.report_folders import NamedRun
from servetwin.app.reports.table import Cell, Content
from servetwin.app.reports.tables import counts_line, error_lines
from servetwin.app.words import slo_words
from servetwin.loadtest.report import load_notes
from servetwin.sim.records.metrics import SLO
from servetwin.sim.records.run import Run, RunKind
from servetwin.sim.records.steady_part import describe_steady

_DELIVERED = "client ok"


def facts(run: Run) -> list[Content]:
    """Return lines on what a run was, beside its ``doubts``; a ``Cell`` is good news."""
    summary = run.summary()
    return [
        run_words.what_ran(run),
        *(load_notes.load_facts(run) if run.kind == "loadtest" else ()),
        counts_line(summary["requests"]),
        *error_lines(map(run_words.without_paths, run.requests["error"].dropna())),
        *_sources(run.kind, summary),
        *(load_notes.load_notes(run) if "delivered" in run.extra else ()),
        describe_steady(summary["steady"]),
    ]


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
        return run_words.what_ran(runs[0].run)
    traces = dict.fromkeys(
        str(named.run.scenario.get("trace", "an unnamed trace")) for named in runs
    )
    sizes = sorted({len(named.run.requests) for named in runs})
    requests = f"{sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else f"{sizes[0]}"
    return f"{len(runs)} runs, {requests} requests each, of {', '.join(traces)}"


def doubts(run: Run) -> list[str]:
    """Return why the figures of a run cannot be taken as they stand."""
    summary = run.summary()
    if run.kind == "loadtest":
        delivery = summary.get("delivered", {})
        verdict = delivery.get("verdict", "unknown")
        unclear = [] if verdict == _DELIVERED or delivery.get("limited_by") else [verdict]
        return [*unclear, *load_notes.load_warnings(delivery)]
    provenance = summary.get("provenance")
    warning = provenance and run_words.outside_warning(provenance, widened=False)
    return [warning] if warning else []


def _sources(kind: RunKind, summary: Mapping[str, Any]) -> Iterator[Content]:
    if kind == "loadtest":
        delivery = summary.get("delivered", {})
        css = "good" if delivery.get("verdict") == _DELIVERED else ""
        yield Cell(load_notes.delivered_line(delivery), css=css)
    elif provenance := summary.get("provenance"):
        yield run_words.provenance_line(provenance)
