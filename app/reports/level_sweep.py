"""A sweep over load levels in words: a row per level, the predicted one below it, and the knee."""

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from servetwin.app.reports.load_test import LoadVerdict
from servetwin.app.reports.table import Table, table_lines, wrapped
from servetwin.app.words import METRICS, Metric, asset_table, number, slo_words
from servetwin.loadtest.report.load_notes import made_words
from servetwin.loadtest.sweep.attainment import CONFIDENCE, least_requests
from servetwin.loadtest.sweep.knee import KNEE_CONFIDENCE, Knee, held
from servetwin.loadtest.sweep.level import COMPLETED, FIGURES, SHARE, TOKENS, Level
from servetwin.loadtest.sweep.sweep import MISSED_ALONE, NONE_FINISHED, Sweep
from servetwin.sim.experiments.capacity import CONFIDENCE as CAPACITY_CONFIDENCE
from servetwin.sim.records.metrics import SLO
from servetwin.workloads.rows import counted

_REAL = asset_table("words.yaml")["real prompts"]
_TEXT_FIGURES = FIGURES[:4]
_SHARES = f"shares with their {CONFIDENCE:.0%} intervals"


def sweep_verdict(sweep: Sweep) -> LoadVerdict:
    """Judge a sweep: up to which rate it holds its limits; of others, that it was measured."""
    levels, ended, knee = counted(len(sweep.levels), "finished level"), sweep.ended, sweep.knee
    if ended and ended.startswith(NONE_FINISHED):
        return LoadVerdict("FAIL", ended)
    if sweep.early or ended is None:
        return LoadVerdict("CUT OFF", f"{ended or 'killed'}; {levels}")
    if sweep.settings.of != "slo" and sweep.levels:
        return LoadVerdict("PASS", levels)
    limits, wanted = slo_words(sweep.limits or SLO(), "<= "), sweep.settings.wanted
    kept = f"{100 * wanted:g} % of the requests keep {limits}"
    if ended == MISSED_ALONE:
        return LoadVerdict("FAIL", f"{ended}: {kept} at no rate")
    if knee is None:
        return LoadVerdict("CANNOT TELL", f"{ended} before a level at a rate; {levels}")
    holding = held(sweep.rated, wanted).below
    if holding is None:
        return LoadVerdict("FAIL", f"not at the lowest rate that was tried: {kept}")
    return LoadVerdict("PASS", f"up to {knee.rate_per_s or holding:.4g} requests/s, {kept}")


def load_lines(sweep: Sweep) -> Iterator[str]:
    """Yield what was sent: to which server, of which lengths, when and by which versions."""
    about, settings = sweep.about, sweep.settings
    prompts = _REAL if about.get("real_prompts") else "each has prompts of its own"
    load = about.get("load", {})
    arrivals = load.get("arrivals") or ("its own gaps" if "path" in load else "poisson")
    arrivals = "closed loops" if settings.of == "users" else arrivals
    yield f"load test of {about.get('model')} at {about.get('base_url')} ({about.get('api', '')})"
    requests = f"{'up to ' if settings.level_s else ''}{settings.requests}"
    yield f"levels of {requests} requests of {about.get('trace')}, {arrivals}; {prompts}"
    yield from filter(None, [about.get("lengths"), made_words(about.get("machine", {}))])
    if sweep.limits:
        by_alone = "" if settings.slo else ", by what requests take that come alone"
        yield f"limits: {slo_words(sweep.limits)}{by_alone}; {_SHARES}"


def sweep_lines(sweep: Sweep) -> list[str]:
    """Return the lines on a sweep: its verdict, its levels, what was sent, and its knee."""
    return [
        *wrapped([str(sweep_verdict(sweep))], "  "),
        "",
        *_text_table(sweep),
        "",
        *wrapped(load_lines(sweep), "  "),
        "",
        *wrapped([*knee_sentences(sweep), f"ended: {sweep.ended or 'not yet'}"], "  "),
    ]


def level_rows(sweep: Sweep) -> pd.DataFrame:
    """Return a row per level for a CSV: its load, its figures, and whether it counts."""
    return pd.DataFrame(
        {"load": one.plan.load, "requests": one.requests, "failed": one.failed, **one.figures,
         "counts": one.counts}
        for one in sweep.levels
    )  # fmt: skip


def level_line(level: Level) -> str:
    """Return one line on a level that was just measured."""
    if not level.counts:
        return f"  does not count: {level.limited_by[0]}"
    done = f"{number(level.figures[COMPLETED], 1.0)}/s done"
    share = f", {share_words(level)} within the SLO" if level.attainment else ""
    return f"  {done}{share}"


def share_words(level: Level) -> str:
    """Return the share of a level's requests within the SLO, with its interval."""
    share = level.attainment
    if share is None:
        return "-"
    return f"{100 * share.share:.2f} % ({100 * share.low:.1f} to {100 * share.high:.1f})"


def knee_sentences(sweep: Sweep) -> Iterator[str]:
    """Yield what the levels say of the knee, and how the predicted one compares."""
    knee, wanted = sweep.knee, sweep.settings.wanted
    if knee is None:
        return
    yield f"knee: {_knee_words(knee)} ({100 * wanted:g} % of the requests within the SLO)"
    if sweep.predicted:
        yield f"predicted knee: {_predicted_words(sweep.predicted, knee)}"
    most = max(level.requests for level in sweep.levels)
    if most < (least := least_requests(wanted)):
        yield (
            f"no lower end: a level of {most} requests cannot prove "
            f"{100 * wanted:g} %, even without a miss; --sweep-requests {least}"
        )


def _knee_words(knee: Knee) -> str:
    rate, low, high = knee.rate_per_s, knee.low_per_s, knee.high_per_s
    place = "not between the rates of these levels" if rate is None else f"{rate:.4g} requests/s"
    least = "below the lowest rate" if low is None else f"{low:.4g}"
    most = "above the highest rate" if high is None else f"{high:.4g}"
    return f"{place}, {KNEE_CONFIDENCE:.0%} interval {least} to {most}"


def _predicted_words(predicted: Knee, knee: Knee) -> str:
    rate_per_s = predicted.rate_per_s or 0.0
    text = f"{rate_per_s:.4g} requests/s"
    if predicted.low_per_s is not None:
        share = 100 * CAPACITY_CONFIDENCE
        text += f", {share:g} %: {predicted.low_per_s:.4g} to {predicted.high_per_s:.4g}"
    if knee.rate_per_s is None:
        return text
    low, high = knee.low_per_s or 0.0, knee.high_per_s or float("inf")
    where = "inside" if low <= rate_per_s <= high else "outside"
    off = rate_per_s / knee.rate_per_s - 1
    return f"{text}; {off:+.1%} of the measured one, {where} its interval"


def sweep_table(sweep: Sweep) -> Table:
    """Return a row per level, and one for its prediction, with all figures."""
    shown = _shown_metrics(sweep, FIGURES)
    titles = [f"{metric.title} {key.partition('.')[2]}" for key, metric in shown.items()]
    heads = ["level", "", "requests/s done", *titles, "tokens/s", "within the SLO"]
    rows = [[level.plan.load, *cells] for level in sweep.levels for cells in _rows(level, shown)]
    return Table(heads, rows, _SHARES if sweep.limits else "")


def _text_table(sweep: Sweep) -> Iterator[str]:
    """Yield TTFT and TPOT of every level, its prediction below it; notes on levels at the end."""
    shown = _shown_metrics(sweep, _TEXT_FIGURES)
    parts = ((metric, key[-3:]) for key, metric in shown.items())
    titles = [f"{m.label} p50" if point == "p50" else f"{point} {m.unit}" for m, point in parts]
    heads = ["", "done/s", *titles, "tokens/s", "within SLO"]
    last = len(heads) - (sweep.limits is None)
    rows = [
        ["  predicted" if kind == "predicted" else level.plan.load, *cells][:last]
        for level in sweep.levels
        for kind, *cells in _rows(level, shown)
    ]
    yield from table_lines(heads[:last], rows, "<>>>>>><")
    yield from (line for level in sweep.levels for line in _notes(level))


def _shown_metrics(sweep: Sweep, keys: Sequence[str]) -> dict[str, Metric]:
    """Return the metrics of figures, each in the unit that fits its figures of all levels."""
    rows = [row for level in sweep.levels for row in (level.figures, level.predicted) if row]
    names = {key: key.partition(".")[0] for key in keys}
    return {
        key: METRICS[name].fitting(
            row[other] for row in rows for other in keys if names[other] == name
        )
        for key, name in names.items()
    }


def _rows(level: Level, shown: Mapping[str, Metric]) -> Iterator[list[str]]:
    """Yield what is measured and what is predicted of a level, each with its kind first."""
    kind = "measured" if level.counts else f"does not count: {level.limited_by[0]}"
    yield [kind, *_cells(level.figures, shown), share_words(level)]
    if level.predicted:
        share = level.predicted[SHARE]
        words = "-" if share is None else f"{100 * share:.2f} %"
        yield ["predicted", *_cells(level.predicted, shown), words]


def _cells(figures: Mapping[str, float | None], shown: Mapping[str, Metric]) -> list[str]:
    latencies = (number(figures[key], metric.factor) for key, metric in shown.items())
    return [number(figures[COMPLETED], 1.0), *latencies, number(figures[TOKENS], 1.0)]


def _notes(level: Level) -> Iterator[str]:
    if not level.counts:
        yield f"{level.plan.load} does not count: {level.limited_by[0]}"
    elif level.attempts > 1:
        yield f"{level.plan.load}: attempt {level.attempts}, the client was late before"
    if level.failed:
        yield f"{level.plan.load}: {counted(level.failed, 'request')} did not finish"
