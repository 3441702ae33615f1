"""One self-contained HTML file: a report of runs, or a single chart."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

import yaml
from jinja2 import Environment, FunctionLoader, StrictUndefined

from servetwin.app.figures import agreement, canvas, over_time
from servetwin.app.figures.canvas import Looks
from servetwin.app.figures.pictures import Caption
from servetwin.app.reports.claims import render_requests
from servetwin.app.reports.html.charts import Chart, Charts, packed_library
from servetwin.app.reports.html.facts import about, doubts, facts
from servetwin.app.reports.html.first_screen import judged_screen, plain_screen, sweep_screen
from servetwin.app.reports.html.run_charts import run_charts
from servetwin.app.reports.html.tables import comparison_table, latency_table
from servetwin.app.reports.level_sweep import sweep_verdict
from servetwin.app.reports.report_folders import NamedRun, Trial
from servetwin.app.reports.run_words import run_without_paths, what_ran_short, without_paths
from servetwin.app.reports.table import Cell, Table
from servetwin.app.reports.verdict import WHY_TITLE, explanation_sentences
from servetwin.app.verdict.claims import RequestDifferences, compare, compare_requests
from servetwin.app.verdict.measured_facts import resimulate_as_sent
from servetwin.app.words import METRICS, asset
from servetwin.loadtest.sweep.sweep import Sweep
from servetwin.sim.records.metrics import LATENCIES, SLO
from servetwin.workloads.errors import ServetwinError

NO_SWEEPS: Mapping[str, Sweep] = {}
_FIRST_CHARTS = 2
_UNKNOWN = "not recorded"


def render_html(
    runs: Sequence[NamedRun],
    trials: Sequence[Trial],
    slo: SLO | None = None,
    sweeps: Mapping[str, Sweep] = NO_SWEEPS,
) -> str:
    """Return a page that needs no other file and no network: runs, and the ``trials`` among them.

    ``sweeps`` are those over load levels, by name, whose levels are among the runs. All texts, of
    traces too, are escaped. About 2 MB, of which 10,000 requests are a tenth.
    """
    runs = [
        replace(one, run=run_without_paths(one.run), verdict=without_paths(one.verdict))
        for one in runs
    ]
    looks, charts = canvas.looks(named.name for named in runs), Charts()
    all_charts = list(run_charts(runs, looks, slo or SLO()))
    screens = [sweep_screen(name, sweep, charts) for name, sweep in sweeps.items()]
    if trials:
        screens.append(judged_screen(trials, runs, slo, looks, charts))
        if len(runs) == 1 + len(trials[0].measured):
            del all_charts[0]  # the first screen has it
    elif not sweeps:
        first, all_charts = all_charts[:_FIRST_CHARTS], all_charts[_FIRST_CHARTS:]
        placed = [charts.place(title, figure) for _, title, figure in first]
        screens.append(plain_screen(runs, slo, looks, placed))
    return _render(
        "report.html.j2",
        charts,
        title=_title(runs, trials, sweeps),
        swept=bool(sweeps),
        about=about(runs),
        screens=screens,
        facts=[_facts(named, looks[named.name].colour) for named in runs],
        tables=[latency_table(runs, looks)],
        sections=[
            (section, [charts.place(title, figure) for _, title, figure in of_section])
            for section, of_section in groupby(all_charts, key=itemgetter(0))
        ],
        trials=[_trial_section(trial, len(trials) > 1, looks, charts) for trial in trials],
        why_title=WHY_TITLE,
        made_by=made_when(runs),
        notes=list(_notes(runs)),
        versions=_versions(runs),
        scenarios=[
            (one.name, yaml.safe_dump(one.run.scenario, sort_keys=False, allow_unicode=True))
            for one in runs
        ],
        metrics=METRICS.values(),
    )


def picture_page(figure: canvas.Figure, caption: Caption) -> str:
    """Return a chart that can be zoomed, with title, source and link; about 2 MB, no network."""
    charts, title = Charts(), figure.title
    chart = charts.place("", figure)
    return _render("picture.html.j2", charts, title=title, chart=chart, caption=caption)


def _render(template: str, charts: Charts, **content: object) -> str:
    """Return a page that forbids all requests, so that a mistake could make none."""
    environment = Environment(
        loader=FunctionLoader(asset), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template(template).render(
        **content, asset=asset, library=packed_library(), charts_json=charts.as_json()
    )


def _facts(named: NamedRun, colour: str) -> dict[str, object]:
    """Return what a run was, its doubts first, under its name and colour."""
    doubtful = [Cell(doubt, css="bad") for doubt in doubts(named.run)]
    return {"name": named.name, "colour": colour, "lines": [*doubtful, *facts(named.run)]}


def _trial_section(
    trial: Trial, is_one_of_many: bool, looks: Looks, charts: Charts
) -> dict[str, object]:
    """Return a prediction against its load tests: tables, requests, causes of the error, charts."""
    differences = {
        named.name: compare_requests(trial.predicted.run, named.run) for named in trial.measured
    }
    tables = []
    if is_one_of_many:  # the first screen has shown a part of it
        tables.append(comparison_table(trial.comparison))
    return {
        "name": trial.name,
        "load": trial.load,
        "tables": tables,
        "requests": [f"{name}, {render_requests(of)}" for name, of in differences.items()],
        "causes": explanation_sentences(trial.why) if trial.why else [],
        "charts": list(_agreement_charts(trial, differences, looks, charts)),
        "as_sent": [_as_sent(trial.predicted, named) for named in trial.measured],
    }


def _agreement_charts(
    trial: Trial, differences: Mapping[str, RequestDifferences], looks: Looks, charts: Charts
) -> Iterator[Chart]:
    """Yield two charts per latency: percentile by percentile, and request by request."""
    measured = {named.name: named.run.requests for named in trial.measured}
    off = {
        name: of.frame.merge(measured[name][["request_id", "scheduled_s"]], on="request_id")
        for name, of in differences.items()
    }
    for name in LATENCIES:
        label, predicted = METRICS[name].label, trial.predicted.run.requests
        percentiles = agreement.predicted_against_measured(predicted, measured, name, looks)
        yield charts.place(f"{label}, percentile by percentile", percentiles)
        errors = over_time.differences_over_time(off, name, looks)
        yield charts.place(f"{label}, request by request", errors)


def _as_sent(predicted: NamedRun, measured: NamedRun) -> dict[str, object]:
    """Return a load test, simulated again with its send times; else why that is not possible."""
    try:
        again, sent = resimulate_as_sent(predicted.run, measured.run)
    except ServetwinError as error:
        return {"name": measured.name, "problem": without_paths(str(error))}
    return {"name": measured.name, "table": comparison_table(compare(again, [sent]))}


def _title(runs: Sequence[NamedRun], trials: Sequence[Trial], sweeps: Mapping[str, Sweep]) -> str:
    """Return what the page is about."""
    first = what_ran_short(runs[0].run.kind, runs[0].run.scenario)
    if trials:
        predicted = trials[0].predicted.run
        return f"Predicted and measured: {what_ran_short(predicted.kind, predicted.scenario)}"
    if sweeps:
        words = (sweep_verdict(sweep).word for sweep in sweeps.values())
        return f"{', '.join(dict.fromkeys(words))}: {first}"
    if len(runs) > 1:
        return f"{len(runs)} runs compared"
    word = runs[0].verdict.partition(":")[0]
    return f"{word}: {first}" if word else first[:1].upper() + first[1:]


def made_when(runs: Sequence[NamedRun]) -> str:
    """Return the versions that made the runs, and the first and the last day."""
    versions = dict.fromkeys(str(named.run.meta.get("servetwin") or _UNKNOWN) for named in runs)
    days = sorted({str(named.run.meta["date"])[:10] for named in runs if "date" in named.run.meta})
    ends = dict.fromkeys([*days[:1], *days[-1:]])
    return ", ".join(["servetwin " + " and ".join(versions), *filter(None, [" to ".join(ends)])])


def _notes(runs: Sequence[NamedRun]) -> Iterator[tuple[str, list[str]]]:
    """Yield each note once, with the names of its runs where others lack it."""
    names: dict[str, list[str]] = {}
    for named in runs:
        for note in named.run.scenario.get("notes") or ():
            names.setdefault(str(note), []).append(named.name)
    for note, of in names.items():
        yield note, of if len(of) < len(runs) else []


def _versions(runs: Sequence[NamedRun]) -> Table:
    keys = ("servetwin", "python", "processor", "cores", "date")
    rows = [[one.name, *(str(one.run.meta.get(key) or _UNKNOWN) for key in keys)] for one in runs]
    return Table(["run", *keys], rows)
