"""The tables of ``published.json``; as a module, it writes that file."""

import json
from collections.abc import Iterator

from servetwin.app.scenario.files.technique_scenario import read_technique_scenario
from servetwin.sim.techniques.effects import REPLICATIONS, Change, Effect
from servetwin.sim.techniques.quality import quality_of
from tests.support.published.claim import Claim
from tests.support.published.effects import EFFECTS, MEASURED, PublishedEffect, measured_effects
from tests.support.published.errors import ERRORS
from tests.support.published.kept_tables import PATH, PublishedRow, PublishedTable
from tests.support.published.tables import TABLES


def computed_table(name: str) -> PublishedTable:
    """Compute a table anew; ``effects`` simulates."""
    if name == "effects":
        title = f"{len(EFFECTS)} techniques x 4 metrics: signs, and sizes here"
        tried = read_technique_scenario(None)
        effects = measured_effects(tried.setup, tried.experiment, REPLICATIONS, 0)
        rows = [row for published, effect in effects for row in effect_rows(published, effect)]
        return PublishedTable(title=title, items="1.1.3", rows=rows)
    table = TABLES[name]
    return PublishedTable(title=table.title, items=table.items, rows=list(map(_row, table.rows())))


def effect_rows(published: PublishedEffect, effect: Effect) -> Iterator[PublishedRow]:
    """Yield a row for each metric and condition; a sign that differs has its reason."""
    for (aspect, measured), printed in zip(MEASURED.items(), published.signs, strict=True):
        signs: dict[str, tuple[str, str]] = {
            c: (effect.of(n).sign, _size(effect.of(n))) for c, n in measured.items()
        }
        if aspect == "quality":
            model = read_technique_scenario(None).setup.deployment.model
            quality = quality_of(effect.technique, model)
            known = ("0" if quality.loss <= 0 else "-", "") if quality else ("", "n/a")
            signs = {"alone": known}
        for condition, (sign, size) in signs.items():
            what = f"{published.row}: {aspect}, {condition}"
            why = _reason(published.why.get(aspect, "")) if sign != printed else ""
            yield PublishedRow(what=what, printed=printed, here=f"{sign} {size}".strip(), why=why)


def _size(change: Change) -> str:
    assert change.change is not None
    assert change.low is not None
    assert change.high is not None
    digits = 0 if abs(change.change) >= 1 else 1
    half = 50 * (change.high - change.low)
    return f"{100 * change.change:+.{digits}f}±{half:.{digits}f} %"


def _row(claim: Claim) -> PublishedRow:
    return PublishedRow(
        what=claim.what, printed=claim.printed, here=claim.here, why=_reason(claim.why)
    )


def _reason(why: str) -> str:
    return f"{why}: {ERRORS[why]}" if why in ERRORS else why


if __name__ == "__main__":
    tables = {name: computed_table(name) for name in ("effects", *TABLES)}
    PATH.write_text(json.dumps(tables, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
