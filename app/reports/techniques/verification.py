"""The effects of techniques, predicted and measured, in words and tables."""

import json
from collections.abc import Sequence

from servetwin.app.reports.table import table_lines
from servetwin.app.verdict.claims import worst
from servetwin.app.verdict.effects.sides import METRICS
from servetwin.app.verdict.effects.verification import EffectVerification, MetricEffect
from servetwin.app.verdict.intervals import CONFIDENCE

_HEADS = ("", "predicted", "measured", "sign", "inside", "verdict")


def effect_lines(verification: EffectVerification) -> list[str]:
    """Return one technique: its formula, a line for each metric, and the verdict."""
    efficiency, origin = verification.predicted.efficiency, verification.profile.origin
    rests = (
        [
            f"step times without it: {origin}; what it changes: computed from data sheets, by its "
            "formula",
            f"the engine without it achieves {efficiency.compute:.0%} of the measured FLOP/s and "
            f"{efficiency.memory:.0%} of the bandwidth, "
            f"{1e3 * efficiency.overhead_s:.2f} ms a step",
        ]
        if efficiency
        else [f"it changes policies alone: the step times are those of the calibration ({origin})"]
    )
    effects = verification.effects
    rows = ((METRICS[one.comparison.metric], *effect_cells(one)) for one in effects)
    return [
        "",
        f"{verification.sides.name}: {verification.sides.technique.formula}",
        *rests,
        f"{len(verification.without)} pairs of load tests; change with the technique, "
        f"{CONFIDENCE:.0%} intervals",
        *table_lines(_HEADS, rows, "<>><", indent="  "),
        f"verdict: {verification.outcome.replace('refuted', 'REFUTED')}",
    ]


def summary_lines(verifications: Sequence[EffectVerification]) -> list[str]:
    """Return how many signs and sizes of all techniques are right, metric by metric."""
    effects = [effect for one in verifications for effect in one.effects]
    signs = [effect.sign_right for effect in effects]
    sizes = [effect.is_inside for effect in effects]
    return [
        "",
        f"{len(verifications)} techniques, {len(effects)} effects: sign right in "
        f"{signs.count(True)}, wrong in {signs.count(False)}, unsure in {signs.count(None)}; "
        f"size inside in {sizes.count(True)}, outside in {sizes.count(False)}",
    ]


def effects_json(verifications: Sequence[EffectVerification]) -> str:
    """Return the verifications as JSON."""
    outcome = worst(one.outcome for one in verifications)
    records = [one.as_dict() for one in verifications]
    return json.dumps({"outcome": outcome, "holds": outcome == "holds", "techniques": records})


def effect_cells(effect: MetricEffect) -> tuple[str, str, str, str, str]:
    """Return predicted and measured change, sign, inside, and verdict, as printed."""
    row, interval = effect.comparison, effect.measured_interval
    predicted = row.predicted
    return (
        _change(predicted.value, (predicted.low, predicted.high)) if predicted else "-",
        "-" if row.measured is None else _change(row.measured, interval),
        _word(effect.sign_right, "right", "WRONG", "unsure"),
        _word(effect.is_inside, "yes", "no", "-"),
        (row.outcome or "-").replace("refuted", "REFUTED"),
    )


def _change(ratio: float, interval: tuple[float, float] | None) -> str:
    text = _percent(ratio)
    if interval is None:
        return text
    return f"{text} [{_percent(interval[0])}, {_percent(interval[1])}] %"


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.0f}"


def _word(known: bool | None, yes: str, no: str, unknown: str) -> str:
    return unknown if known is None else yes if known else no
