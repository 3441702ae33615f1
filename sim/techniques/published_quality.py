"""Published figures of quality: perplexity or accuracy with a technique and without it.

All stand in one file, ``published_quality.json``: sources with their date, sizes of models, and
series, each of one technique with the parameters that were measured.
"""

from collections.abc import Iterable
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from servetwin.sim.catalogue.frozen_model import FrozenModel, Positive
from servetwin.workloads.errors import PolicyError, did_you_mean
from servetwin.workloads.key_values import key_values
from servetwin.workloads.plugins import split_settings

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
    """What one technique does to models of several sizes, on one task.

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

    @model_validator(mode="after")
    def _require_known_names(self) -> Self:
        for place, series in enumerate(self.series):
            where = f"series[{place}]"
            _require_known(f"{where}.source", series.source, self.sources)
            for model in series.models:
                _require_known(f"{where}.models", model, self.models)
        return self


def read_published_quality(path: Path | Traversable) -> PublishedQuality:
    """Read published figures of quality.

    Raises ``PolicyError`` that names the file, the key and what would be right.
    """
    try:
        return PublishedQuality.model_validate_json(path.read_text("utf-8"))
    except OSError as error:
        raise PolicyError(f"{path}: cannot be read ({error.strerror})") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
        said = first["msg"].removeprefix("Value error, ")
        raise PolicyError(f"{path}: {f'{key[1:]}: ' if key else ''}{said}") from error


@cache
def published_quality() -> PublishedQuality:
    """Return the figures that come with the product."""
    file = "techniques/published_quality.json"
    return read_published_quality(resources.files("servetwin.sim").joinpath(file))


def _require_known(where: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise ValueError(f"{where}: unknown {name!r}; {did_you_mean(name, known)}")
