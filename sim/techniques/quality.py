"""The loss of quality by a technique: 0 where it keeps the answers, else published or given.

Nothing is computed and nothing is interpolated. A figure measured on another model is that of the
model nearest in size, and says so; without a figure the quality is not known.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import log
from typing import Annotated, Literal, cast, get_args

from pydantic import Field

from servetwin.sim.catalogue.entry import FrozenModel, Positive
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.techniques.technique import Technique
from servetwin.workloads.errors import PolicyError, did_you_mean, require_name
from servetwin.workloads.plugins import split_settings
from servetwin.workloads.program.key_values import key_value, key_values, number_in
from servetwin.workloads.program.package import shipped_json

Metric = Literal["perplexity", "accuracy"]
_Text = Annotated[str, Field(min_length=1)]


class Source(FrozenModel):
    """Where a figure was published, and when: ``YYYY``, ``YYYY-MM`` or ``YYYY-MM-DD``."""

    title: _Text
    date: Annotated[str, Field(pattern=r"^\d{4}(-\d{2}){0,2}$")]
    where: _Text

    def __str__(self) -> str:
        """Return title and date."""
        return f"{self.title} ({self.date})"


class Series(FrozenModel):
    """The effect of one technique on models of several sizes, on one task.

    ``technique`` has the parameters that were measured (``awq:bits=4,group=128``); others may have
    any value. ``models``: by name the figure without the technique and with it; accuracies are in
    per cent. ``method``: what else is to be known of how it was made.
    """

    technique: _Text
    method: str
    metric: Metric
    task: _Text
    source: _Text
    models: Annotated[dict[str, tuple[Positive, Positive]], Field(min_length=1)]

    @property
    def name(self) -> str:
        """Return the name of the technique."""
        return split_settings(self.technique)[0]

    @property
    def parameters(self) -> dict[str, str]:
        """Return the parameters that were measured, as they are written."""
        return key_values(split_settings(self.technique)[1], f"technique {self.name}")


class PublishedQuality(FrozenModel):
    """The whole file. ``models``: their weights, in 1e9."""

    sources: dict[str, Source]
    models: dict[str, Positive]
    series: tuple[Series, ...]


@cache
def published_quality() -> PublishedQuality:
    """Return the figures that come with the product."""
    return PublishedQuality.model_validate(shipped_json("sim/techniques/published_quality.json"))


Basis = Literal["by definition", "this model", "nearest model", "own value"]
FORM = "NAME=METRIC:CHANGE%@SOURCE"
EXAMPLE = "awq=accuracy:-1.3%@own evaluation, 2026-11"
_OWN = re.compile(r"(?P<metric>[^:]*):(?P<change>[^%@]*)%?\s*(?:@(?P<source>.*))?")
_LEAST_CHANGE, _MOST_CHANGE = -1.0, 1e4


@dataclass(frozen=True, slots=True)
class Quality:
    """The relative change of a metric of quality, and how it is known.

    ``before`` and ``after`` are the published figures of ``model``; your value has none.
    """

    basis: Basis
    change: float
    source: str
    metric: Metric | None = None
    task: str = ""
    method: str = ""
    model: str = ""
    before: float | None = None
    after: float | None = None

    @property
    def loss(self) -> float:
        """Return the relative loss: higher perplexity, or lower accuracy."""
        return -self.change if self.metric == "accuracy" else self.change


# The quality of a lossless technique.
KEPT = Quality("by definition", 0.0, "the answers stay the same")


def quality_of(
    technique: Technique,
    model: ModelShape,
    own: Mapping[str, Quality] | None = None,
    published: PublishedQuality | None = None,
) -> Quality | None:
    """Return the quality of ``technique`` on ``model``; None where it is not known.

    A value that you give comes first, then the same model, then the nearest in size.
    """
    if technique.lossless:
        return KEPT
    if own and technique.name in own:
        return own[technique.name]
    known = published or published_quality()
    size = log(model.params() / 1e9)
    rows = [
        (name != model.name, abs(log(known.models[name]) - size), place, series, name)
        for place, series in enumerate(known.series)
        if _is_of(series, technique)
        for name in series.models
    ]
    if not rows:
        return None
    is_other, _, _, series, name = min(rows, key=lambda row: row[:3])
    return _published(series, name, "nearest model" if is_other else "this model", known)


def parse_own_qualities(
    texts: Iterable[str], tried: Iterable[Technique], where: str = "--quality"
) -> dict[str, Quality]:
    """Return the values that you give by technique, from texts such as ``EXAMPLE``.

    Raises ``PolicyError`` that names ``where``, the technique, the reason and the right form.
    """
    techniques = {technique.name: technique for technique in tried}
    qualities: dict[str, Quality] = {}
    for text in texts:
        name, value = key_value(text, where, form=FORM)
        if name not in techniques:
            hint = did_you_mean(name, techniques, f"tried are {', '.join(techniques)}")
            raise PolicyError(f"{where}: {name!r} is not among the techniques tried; {hint}")
        if techniques[name].lossless:
            raise PolicyError(f"{where}: {name} keeps the answers: its quality is 0 by definition")
        if name in qualities:
            raise PolicyError(f"{where}: {name} has two values; give one")
        qualities[name] = _own(f"{where}: {name}", value)
    return qualities


def _own(where: str, value: str) -> Quality:
    right = f"write {FORM}, such as {EXAMPLE!r}"
    match = _OWN.fullmatch(value)
    if match is None:
        raise PolicyError(f"{where}: {value!r} is not METRIC:CHANGE%@SOURCE; {right}")
    metric, source = match["metric"].strip(), (match["source"] or "").strip()
    if not source:
        raise PolicyError(f"{where}: a quality without a source; {right}")
    require_name(metric, get_args(Metric), f"{where}: unknown metric", PolicyError)
    change = _share(where, match["change"].strip())
    return Quality("own value", change, source, cast(Metric, metric))


def _share(where: str, text: str) -> float:
    share = number_in(text) / 100
    if not _LEAST_CHANGE < share <= _MOST_CHANGE:
        right = f"it is above {100 * _LEAST_CHANGE:g} and at most {100 * _MOST_CHANGE:,.0f}"
        raise PolicyError(f"{where}: a change of {text} % is not possible; {right}")
    return share


def _is_of(series: Series, technique: Technique) -> bool:
    values = technique.model_dump()
    return series.name == technique.name and all(
        str(values.get(key)) == value for key, value in series.parameters.items()
    )


def _published(series: Series, model: str, basis: Basis, known: PublishedQuality) -> Quality:
    before, after = series.models[model]
    measured = series.metric, series.task, series.method, model, before, after
    return Quality(basis, after / before - 1, str(known.sources[series.source]), *measured)


def on_quality_front(points: Sequence[tuple[Quality, float]]) -> list[bool]:
    """Return whether no other technique beats each, by its quality and its relative throughput.

    One beats another with no more loss and no less throughput, and one of the two better.
    Perplexity and accuracy are not compared with each other, both are with a kept quality. A gain
    in quality counts as no loss: published ones lie within the noise.
    """
    return [not any(_beats(other, point) for other in points) for point in points]


def _beats(one: tuple[Quality, float], other: tuple[Quality, float]) -> bool:
    metrics = {one[0].metric, other[0].metric} - {None}
    if len(metrics) > 1:
        return False
    losses, gains = [max(0.0, quality.loss) for quality, _ in (one, other)], (one[1], other[1])
    as_good = losses[0] <= losses[1] and gains[0] >= gains[1]
    return as_good and (losses[0] < losses[1] or gains[0] > gains[1])
