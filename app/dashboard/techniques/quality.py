"""Quality of techniques on a server, beside the throughput that was measured there."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from servetwin.app.dashboard.scenario.allowed_choices import offered_technique
from servetwin.app.dashboard.techniques.data_sheet_server import DataSheetServer
from servetwin.app.reports.techniques.quality import (
    HAS_IT,
    RatedEffect,
    on_front,
    quality_cell,
    quality_source,
    rate_effect,
)
from servetwin.sim.techniques.effects import Effect
from servetwin.sim.techniques.quality import Quality, parse_own_qualities, quality_of
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import Experiment

COLUMNS = {"technique": "technique", "quality": "quality", "throughput": "throughput, %",
           "front": "on the front", "known": "how it is known"}  # fmt: skip


def own_qualities(text: str, names: Sequence[str]) -> dict[str, Quality]:
    """Return one's own values, one a line, of the techniques of ``names``.

    Raises ``PolicyError`` that names the technique and the right form.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    return parse_own_qualities(lines, map(offered_technique, names), "own values")


def judge_all(
    effects: Mapping[str, Effect], server: DataSheetServer, own: Mapping[str, Quality]
) -> dict[str, RatedEffect]:
    """Return techniques measured on ``server`` by their texts, each with its quality."""
    setup, load = server.setup(), Experiment()
    judged = {text: rate_effect(effect, setup, load, own) for text, effect in effects.items()}
    return {
        text: replace(one, aside=HAS_IT) if server.text_of(one.effect.technique.name) else one
        for text, one in judged.items()
    }


def quality_table(
    names: Sequence[str],
    judged: Mapping[str, RatedEffect],
    setup: Setup,
    own: Mapping[str, Quality],
) -> pd.DataFrame:
    """Return a row per technique text, with its throughput where that was measured."""
    fronts = dict(zip(judged, on_front(list(judged.values())), strict=True))
    return pd.DataFrame(
        [_row(text, judged.get(text), fronts.get(text), setup, own) for text in names],
        columns=list(COLUMNS.values()),
    )


def quality_points(judged: Mapping[str, RatedEffect]) -> pd.DataFrame:
    """Return the points of ``app.figures.techniques``: those that can be compared."""
    columns = ["technique", "metric", "throughput_percent", "loss_percent", "on_front",
               "is_other_model", "source"]  # fmt: skip
    fronts = on_front(list(judged.values()))
    rows = [
        _point(text, one, best)
        for (text, one), best in zip(judged.items(), fronts, strict=True)
        if best is not None
    ]
    return pd.DataFrame(rows, columns=columns)


def _row(
    text: str, one: RatedEffect | None, best: bool | None, setup: Setup, own: Mapping[str, Quality]
) -> dict[str, Any]:
    quality = quality_of(offered_technique(text), setup.deployment.model, own)
    gain = one.throughput_change if one else None
    aside = one.aside if one else "not measured"
    cells = (
        text,
        quality_cell(quality),
        None if gain is None else 100 * gain,
        {True: "yes", False: "no", None: aside}[best],
        quality_source(quality),
    )
    return dict(zip(COLUMNS.values(), cells, strict=True))


def _point(text: str, one: RatedEffect, best: bool) -> tuple[Any, ...]:
    quality, gain = one.quality, one.throughput_change
    assert quality is not None  # one on or off the front has both
    assert gain is not None
    is_other = quality.basis == "nearest model"
    metric, loss = quality.metric or "kept", 100 * quality.loss
    return text, metric, 100 * gain, loss, best, is_other, quality_source(quality)
