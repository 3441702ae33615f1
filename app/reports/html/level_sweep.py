"""The section of a report on a sweep over load levels: its knee, its table, its curves."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping

from servetwin.app.figures.load_curves import level_curves
from servetwin.app.reports.html.charts import Charts
from servetwin.app.reports.html.elements import Child, card, element, table
from servetwin.app.reports.level_sweep import knee_sentences, share_words
from servetwin.app.words import METRICS, Metric, number
from servetwin.loadtest.sweep.attainment import CONFIDENCE
from servetwin.loadtest.sweep.level import COMPLETED, FIGURES, SHARE, TOKENS, Level
from servetwin.loadtest.sweep.sweep import Sweep

_PRINTED_CURVES = 2


def level_sweep_section(name: str, sweep: Sweep, charts: Charts) -> ET.Element:
    """Return the section of a sweep; ``name`` is that of its folder."""
    drawn = [
        charts.place(title, figure, printed=place < _PRINTED_CURVES)
        for place, (title, figure) in enumerate(level_curves(sweep))
    ]
    found, *said = [*knee_sentences(sweep), f"ended: {sweep.ended or 'not yet'}"]
    return element(
        "section",
        card(f"Sweep over load levels: {name}", found[:1].upper() + found[1:], "quiet", *said),
        _table(sweep),
        element("div", *drawn, class_="charts"),
    )


def _table(sweep: Sweep) -> ET.Element:
    shown = {key: _shown_metric(key, sweep) for key in FIGURES}
    titles = [f"{metric.title} {key.partition('.')[2]}" for key, metric in shown.items()]
    head = ["level", "", "requests/s done", *titles, "tokens/s", "within the SLO"]
    caption = f"shares with their {CONFIDENCE:.0%} intervals" if sweep.settings.slo else None
    return table(head, [row for level in sweep.levels for row in _rows(level, shown)], caption)


def _shown_metric(key: str, sweep: Sweep) -> Metric:
    """Return the metric of a figure in the unit in which the figures of all levels are shown."""
    rows = (row for level in sweep.levels for row in (level.figures, level.predicted) if row)
    return METRICS[key.partition(".")[0]].fitting(row[key] for row in rows)


def _rows(level: Level, shown: Mapping[str, Metric]) -> Iterator[list[Child]]:
    kind = "measured" if level.counts else f"does not count: {level.limited_by[0]}"
    yield [level.plan.load, kind, *_cells(level.figures, shown), share_words(level)]
    if level.predicted:
        share = level.predicted[SHARE]
        said = "-" if share is None else f"{100 * share:.2f} %"
        yield [level.plan.load, "predicted", *_cells(level.predicted, shown), said]


def _cells(figures: Mapping[str, float | None], shown: Mapping[str, Metric]) -> Iterator[str]:
    yield number(figures[COMPLETED], 1.0)
    for key, metric in shown.items():
        yield number(figures[key], metric.factor)
    yield number(figures[TOKENS], 1.0)
