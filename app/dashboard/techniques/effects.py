"""The effects of techniques as tables: a verdict, then the change with its interval."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import pandas as pd

from servetwin.app.dashboard.formatting import page_text
from servetwin.app.dashboard.scenario.allowed_choices import offered_technique
from servetwin.app.dashboard.techniques.data_sheet_server import DataSheetServer
from servetwin.app.reports.techniques.effects import EFFECT_WORDS
from servetwin.app.reports.techniques.quality import quality_cell
from servetwin.app.scenario.options.deployment import technique_name
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.techniques.effects import DEAD_BAND, METRICS, Change, Effect, Laboratory
from servetwin.sim.techniques.quality import quality_of
from servetwin.sim.techniques.registry import TECHNIQUES
from servetwin.sim.techniques.technique import Experiment, Technique
from servetwin.workloads.errors import PolicyError

REPLICATIONS = 5
SEED = 0
WORDS = {"+": "better", "-": "worse", "0": "none", "?": "unsure", "": "undefined"}
HEADS = {name: (words["label"], words["meaning"]) for name, words in EFFECT_WORDS.items()}
EXPLAINED = page_text("techniques.changes", dead=100 * DEAD_BAND, replications=REPLICATIONS)


DOZEN = (
    "continuous-batching", "paged-attention", "chunked-prefill", "prefix-cache",
    "prefill-decode-split", "weight-int4", "fp8", "kv-quantisation", "sliding-window",
    "speculative", "flash-attention", "tensor-parallel",
)  # fmt: skip
"""What servers often have, of every kind."""

Item = tuple[DataSheetServer, str]
"""A server and the technique to measure on it."""


def measure(item: Item) -> Effect:
    """Simulate a server with a technique and without it, in a process of a job.

    The server's other techniques are on both sides; where they exclude it, it is refused.
    """
    server, text = item
    technique = offered_technique(text)
    experiment = technique.experiment or Experiment()
    try:
        server.with_technique(text).setup()
        base = server.untouched(technique.name).setup()
    except PolicyError as error:
        return Effect(technique, experiment, refused=str(error))
    return _laboratory().effect(technique, base, experiment)


def texts(server: DataSheetServer, families: Iterable[str] = ()) -> list[str]:
    """Return the techniques of some families, or all; active ones with their parameters."""
    chosen = set(families)
    return [
        server.text_of(name) or name
        for name, technique in TECHNIQUES.items()
        if not chosen or technique.family in chosen
    ]


def dozen(server: DataSheetServer) -> list[str]:
    """Return the chosen dozen, and what else is on in the server."""
    on = {*DOZEN, *map(technique_name, server.techniques)}
    return [text for text in texts(server) if technique_name(text) in on]


def effects_table(
    names: Iterable[str], effects: Mapping[str, Effect], model: ModelShape
) -> pd.DataFrame:
    """Return a row per technique text; cells not measured yet are empty.

    The quality is that of ``model``, as far as it is known.
    """
    return pd.DataFrame([_row(text, effects.get(text), model) for text in names])


def changes_frame(effects: Iterable[Effect]) -> pd.DataFrame:
    """Return a row per technique and metric, unrounded; one row with the reason where refused."""
    return pd.DataFrame([row for effect in effects for row in _changes(effect)])


def parameters(technique: type[Technique]) -> str:
    """Return every parameter at its default as it is typed, such as ``ways=2``."""
    fields = technique.model_fields.items()
    return ", ".join(f"{key}={field.default}" for key, field in fields)


def change_text(change: Change) -> str:
    """Return a change such as ``better -12.3 % ±0.4``; inside the dead band ``none``."""
    word = WORDS[change.sign]
    if change.sign in ("", "0") or change.low is None or change.high is None:
        return word
    text = f"{word} {_percent(change.change or 0.0, '+')} %"
    half_width = _percent((change.high - change.low) / 2)
    return f"{text} ±{half_width}" if float(half_width) else text


@lru_cache(maxsize=1)
def _laboratory() -> Laboratory:
    """Return one per process: the baseline server of several techniques runs once."""
    return Laboratory(SEED, REPLICATIONS)


def _percent(share: float, sign: str = "") -> str:
    return f"{100 * share:{sign}.{0 if abs(share) >= 0.995 else 1}f}"


def _row(text: str, effect: Effect | None, model: ModelShape) -> dict[str, Any]:
    technique = offered_technique(text)
    changes = {c.metric: change_text(c) for c in effect.changes} if effect else {}
    unknown = "not applicable" if effect and effect.refused else ""
    return {
        "technique": text,
        **{HEADS[metric][0]: changes.get(metric, unknown) for metric in METRICS},
        "quality": quality_cell(quality_of(technique, model)),
        "answers": "the same" if technique.lossless else "may change",
        "family": technique.family,
        "formula": technique.formula,
        "source": technique.source,
    }


def _changes(effect: Effect) -> list[dict[str, Any]]:
    technique = effect.technique
    about = {"technique": technique.name, "family": technique.family, "refused": effect.refused}
    return [
        {**about, "metric": c.metric, "sign": WORDS[c.sign], "change": c.change,
         "low": c.low, "high": c.high}
        for c in effect.changes
    ] or [about]  # fmt: skip
