"""``servetwin techniques table effects``: signs of the notes beside signs and sizes here."""

from collections.abc import Iterator
from textwrap import wrap
from typing import Any

from servetwin.app.reports.tables import WIDTH
from servetwin.app.scenario.files.technique_scenario import read_technique_scenario
from servetwin.sim.published.effects import EFFECTS, MEASURED, PublishedEffect, measured_effects
from servetwin.sim.published.errors import ERRORS
from servetwin.sim.techniques.effects import DEAD_BAND, Change, Effect
from servetwin.sim.techniques.quality import Quality, quality_of

_ASPECT = 16
_NOTES = 7
_CELL = 22
_HEADS = ("alone", "under load", "from admission")
_LOADED = {"saturated": "under load"}
"""Columns of the conditions that have none of their own."""


def effects_report(replications: int, seed: int) -> dict[str, Any]:
    """Return the rows of the notes, each with what its technique does to the default server."""
    tried = read_technique_scenario(None)
    found = measured_effects(tried.setup, tried.experiment, replications, seed)
    return {
        "table": "effects",
        "deployment": tried.setup.deployment.name,
        "load": tried.experiment.describe(),
        "rows": [
            _row(published, effect, quality_of(effect.technique, tried.setup.deployment.model))
            for published, effect in found
        ],
    }


def effects_lines(report: dict[str, Any]) -> Iterator[str]:
    """Return four lines for each technique, then the reasons of signs that differ."""
    yield f"{report['deployment']}: signs of the notes, signs and changes here"
    yield from wrap(report["load"], WIDTH)
    yield ""
    heads = "".join(f"{head:>{_CELL}}" for head in _HEADS)
    yield f"{'':<{_ASPECT}}{'notes':>{_NOTES}}{heads}"
    reasons: dict[str, int] = {}
    for row in report["rows"]:
        yield f"{row['row']} ({row['technique']})"
        for aspect, part in row["aspects"].items():
            if part["why"]:
                reasons.setdefault(part["why"], len(reasons) + 1)
            mark = f" [{reasons[part['why']]}]" if part["why"] else ""
            yield f"  {aspect:<{_ASPECT - 2}}{part['notes']:>{_NOTES}}{_cells(part)}{mark}".rstrip()
    yield ""
    yield f"+ better, - worse, 0 less than {DEAD_BAND:.0%}, ? unsure; changes in %, 95 % interval;"
    yield "throughput: of a saturated server; quality: the sign of what was published"
    for reason, number in reasons.items():
        yield from wrap(f"[{number}] {reason}", WIDTH, subsequent_indent=" " * 4)


def titles() -> dict[str, str]:
    """Return the name and the title of the table."""
    return {"effects": f"{len(EFFECTS)} techniques x 4 metrics: signs, and sizes here (1.1.3)"}


def _row(published: PublishedEffect, effect: Effect, quality: Quality | None) -> dict[str, Any]:
    aspects: dict[str, dict[str, Any]] = {}
    for (aspect, measured), sign in zip(MEASURED.items(), published.signs, strict=True):
        here = {condition: _change(effect.of(name)) for condition, name in measured.items()}
        if aspect == "quality":
            here = {"alone": _quality(quality)}
        why = published.why.get(aspect, "")
        reason = f"{why}: {ERRORS[why]}" if why in ERRORS else why
        aspects[aspect] = {"notes": sign, "here": here, "why": reason}
    return {"row": published.row, "technique": effect.technique.name, "aspects": aspects}


def _change(change: Change) -> dict[str, Any]:
    interval = {"low": change.low, "high": change.high}
    return {"sign": change.sign, "change": change.change, **interval}


def _quality(quality: Quality | None) -> dict[str, Any]:
    """Return the sign and the published change of quality; no sign where it is not known."""
    if quality is None:
        return {"sign": "", "change": None}
    sign = "-" if quality.loss > 0 else "0"
    return {"sign": sign, "change": quality.change or None, "metric": quality.metric}


def _cells(part: dict[str, Any]) -> str:
    here = {_LOADED.get(condition, condition): found for condition, found in part["here"].items()}
    return "".join(f"{_cell(here[head]) if head in here else '':>{_CELL}}" for head in _HEADS)


def _cell(found: dict[str, Any]) -> str:
    if found["change"] is None:
        return str(found["sign"] or "n/a")
    if "metric" in found:
        return f"{found['sign']}  {found['metric']} {100 * found['change']:+.1f}"
    half = 50 * (found["high"] - found["low"])
    digits = 0 if abs(found["change"]) >= 1 else 1
    width = f"{half:.{digits}f}"
    said = f"{found['sign']}  {100 * found['change']:+.{digits}f}"
    return f"{said}±{width}" if float(width) else said
