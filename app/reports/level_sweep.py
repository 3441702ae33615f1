"""A sweep over load levels in words: a row per level, the predicted one below it, and the knee."""

from collections.abc import Iterator, Mapping
from textwrap import wrap

from servetwin.app.reports.tables import WIDTH
from servetwin.app.words import METRICS, Metric, number, slo_words
from servetwin.loadtest.sweep.attainment import CONFIDENCE, least_requests
from servetwin.loadtest.sweep.knee import KNEE_CONFIDENCE, Knee
from servetwin.loadtest.sweep.level import COMPLETED, SHARE, TOKENS, Level
from servetwin.loadtest.sweep.sweep import PredictedKnee, Sweep
from servetwin.sim.experiments.capacity import CONFIDENCE as CAPACITY_CONFIDENCE
from servetwin.workloads.rows import counted

_REAL = (
    "its real prompts are sent as they are at every level, so a prefix cache may know them from "
    "the level before"
)
_POINTS = ("p50", "p99")


def sweep_lines(sweep: Sweep) -> list[str]:
    """Return the lines on a sweep: what was sent, its levels, and its knee."""
    about, settings = sweep.about, sweep.settings
    prompts = _REAL if about.get("real_prompts") else "each has prompts of its own"
    return [
        f"sweep of {about.get('model')} at {about.get('base_url')}",
        *_wrapped(f"levels of {settings.requests} requests of {about.get('trace')}; {prompts}"),
        *_slo_line(sweep),
        "",
        *_table(sweep),
        "",
        *[line for said in knee_sentences(sweep) for line in _wrapped(said)],
        *_wrapped(f"ended: {sweep.ended or 'not yet'}"),
    ]


def level_line(level: Level) -> str:
    """Return one line on a level that was just measured."""
    if not level.counts:
        return f"  does not count: {level.limited_by[0]}"
    done = f"{number(level.figures[COMPLETED], 1.0)}/s done"
    share = f", {share_words(level)} within the SLO" if level.attainment else ""
    return f"  {done}{share}"


def share_words(level: Level) -> str:
    """Return the share of a level's requests within the SLO, with its interval."""
    found = level.attainment
    if found is None:
        return "-"
    return f"{100 * found.share:.2f} % ({100 * found.low:.1f} to {100 * found.high:.1f})"


def knee_sentences(sweep: Sweep) -> Iterator[str]:
    """Yield what the levels say of the knee, and how the predicted one compares."""
    knee, wanted = sweep.knee, sweep.settings.wanted
    if knee is None:
        return
    yield f"knee: {_knee_words(knee)} ({100 * wanted:g} % of the requests within the SLO)"
    if sweep.predicted:
        yield f"predicted knee: {_predicted_words(sweep.predicted, knee)}"
    if sweep.settings.requests < (least := least_requests(wanted)):
        yield (
            f"no lower end: a level of {sweep.settings.requests} requests cannot prove "
            f"{100 * wanted:g} %, even without a miss; --sweep-requests {least}"
        )


def _knee_words(knee: Knee) -> str:
    low, high = knee.low_per_s, knee.high_per_s
    ends = (
        f"{'below the lowest rate' if low is None else f'{low:.4g}'} to "
        f"{'above the highest rate' if high is None else f'{high:.4g}'}"
    )
    if knee.rate_per_s is None:
        return f"not between the rates of these levels, {KNEE_CONFIDENCE:.0%} interval {ends}"
    return f"{knee.rate_per_s:.4g} requests/s, {KNEE_CONFIDENCE:.0%} interval {ends}"


def _predicted_words(predicted: PredictedKnee, knee: Knee) -> str:
    text = f"{predicted.rate_per_s:.4g} requests/s"
    if predicted.low_per_s is not None:
        share = 100 * CAPACITY_CONFIDENCE
        text += f", {share:g} %: {predicted.low_per_s:.4g} to {predicted.high_per_s:.4g}"
    if knee.rate_per_s is None:
        return text
    low, high = knee.low_per_s or 0.0, knee.high_per_s or float("inf")
    where = "inside" if low <= predicted.rate_per_s <= high else "outside"
    off = predicted.rate_per_s / knee.rate_per_s - 1
    return f"{text}; {off:+.1%} of the measured one, {where} its interval"


def _slo_line(sweep: Sweep) -> list[str]:
    slo = sweep.settings.slo
    if slo is None:
        return []
    return [f"SLO {slo_words(slo)}; shares with their {CONFIDENCE:.0%} intervals"]


def _table(sweep: Sweep) -> Iterator[str]:
    share = "   within SLO" if sweep.settings.slo else ""
    shown = _shown_metrics(sweep)
    ttft, tpot = shown["ttft_s"], shown["tpot_s"]
    latencies = (text for of in (ttft, tpot) for text in (f"{of.label} p50", f"p99 {of.unit}"))
    heads = ("done/s", *latencies, "tokens/s")
    yield f"{'':<14}" + "".join(f"{head:>10}" for head in heads) + share
    for level in sweep.levels:
        yield _row(level.plan.load, level.figures, shown, share_words(level) if share else "")
        if level.predicted:
            predicted = level.predicted[SHARE]
            said = "" if predicted is None else f"{100 * predicted:.2f} %"
            yield _row("  predicted", level.predicted, shown, said)
        yield from _notes(level)


def _shown_metrics(sweep: Sweep) -> dict[str, Metric]:
    """Return TTFT and TPOT, each in one unit for all levels."""
    rows = [row for level in sweep.levels for row in (level.figures, level.predicted) if row]
    return {
        name: METRICS[name].fitting(row[f"{name}.{point}"] for row in rows for point in _POINTS)
        for name in ("ttft_s", "tpot_s")
    }


def _row(
    name: str, figures: Mapping[str, float | None], shown: Mapping[str, Metric], share: str
) -> str:
    latencies = [
        number(figures[f"{key}.{point}"], of.factor)
        for key, of in shown.items()
        for point in _POINTS
    ]
    cells = [number(figures[COMPLETED], 1.0), *latencies, number(figures[TOKENS], 1.0)]
    return (f"{name:<14}" + "".join(f"{cell:>10}" for cell in cells) + f"   {share}").rstrip()


def _notes(level: Level) -> Iterator[str]:
    if not level.counts:
        yield f"  does not count: {level.limited_by[0]}"
    elif level.attempts > 1:
        yield f"  the client was late before: attempt {level.attempts}"
    if level.failed:
        yield f"  {counted(level.failed, 'request')} did not finish"


def _wrapped(line: str) -> list[str]:
    return wrap(line, WIDTH, subsequent_indent="  ")
