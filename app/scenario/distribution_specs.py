"""Distributions and processes as text: ``gamma:cv=2``, ``lognormal:mean=512,cv=0.8``.

A name, and behind a colon the settings of it; the choice underneath keeps what the text leaves out.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from servetwin.app.number_bounds import as_number
from servetwin.app.scenario.options.distributions import (
    LENGTHS,
    ArrivalChoice,
    LengthChoice,
    known,
)
from servetwin.workloads.errors import TraceError, did_you_mean
from servetwin.workloads.generators.processes import ARRIVALS, arrival_settings
from servetwin.workloads.key_values import key_values
from servetwin.workloads.plugins import split_settings

if TYPE_CHECKING:
    from servetwin.workloads.generators.pauses import PauseDistribution

_CV = {"cv": "cv"}
_MEAN = {"mean": "mean_tokens"}
_MAX = {"max": "max_tokens"}
_LENGTH_KEYS: Mapping[str, Mapping[str, str]] = {
    "fixed": _MEAN,
    "uniform": {**_MEAN, **_CV, **_MAX},
    "exponential": {**_MEAN, **_MAX},
    "lognormal": {**_MEAN, **_CV, **_MAX},
    "zipf": {"exponent": "zipf", **_MAX},
    "pareto": {**_MEAN, **_CV, **_MAX, "alpha": "tail_alpha"},
}
_THINK_KEYS: Mapping[str, Mapping[str, str]] = {
    "exponential": {"mean": "mean_s"},
    "lognormal": {"median": "median_s", "sigma": "sigma"},
}
_WHOLE = ("max_tokens",)


def arrivals_of(text: str, base: ArrivalChoice, option: str = "--arrivals") -> ArrivalChoice:
    """Return the choice of arrivals in ``text``, laid over ``base``.

    Raises ``TraceError`` naming the option, the part that is wrong and what is valid.
    """
    name, parameters = split_settings(text)
    takes = arrival_settings(name)
    fields = {key: p.name for key, p in takes.items()}
    whole = [p.name for p in takes.values() if re.search(r"\bint\b", str(p.annotation))]
    settings = _parse_settings(f"{option} {name}", parameters, fields, whole)
    own: dict[str, Any] = {
        f: v for f, v in settings.items() if name in ARRIVALS and f in ArrivalChoice.__slots__
    }
    others = tuple((field, value) for field, value in settings.items() if field not in own)
    return replace(base, name=name, **own, settings=others)


def lengths_of(text: str, base: LengthChoice, option: str) -> LengthChoice:
    """Return the choice of lengths in ``text``, laid over ``base``; a number alone is a fixed
    length."""
    if text.isascii() and text.isdigit():
        return replace(base, name="fixed", mean_tokens=_setting(option, text, whole=True))
    name, settings = parse_spec(text, option, _LENGTH_KEYS)
    return replace(base, name=known(option, name, LENGTHS), **settings)


def think_time_of(text: str, option: str = "--think-time") -> "PauseDistribution":
    """Return the distribution of think times in ``text``; a number alone is a fixed time in
    seconds."""
    from servetwin.workloads.generators.pauses import ExponentialPause, LognormalPause

    if (fixed_s := _number(text)) is not None:
        return LognormalPause(fixed_s, sigma=0.0)
    name, settings = parse_spec(text, option, _THINK_KEYS)
    if name == "lognormal":
        return LognormalPause(**settings)
    if not settings:
        raise TraceError(f"{option} {text!r}: wants its mean, such as exponential:mean=2")
    return ExponentialPause(**settings)


def parse_spec(
    text: str, option: str, keys: Mapping[str, Mapping[str, str]]
) -> tuple[str, dict[str, Any]]:
    """Read ``NAME:KEY=NUMBER,...``; ``keys`` has, by name, the fields that its keys set."""
    name, parameters = split_settings(text)
    takes = keys[known(option, name, tuple(keys))]
    return name, _parse_settings(f"{option} {name}", parameters, takes, _WHOLE)


def _parse_settings(
    where: str, text: str, takes: Mapping[str, str], whole: Sequence[str]
) -> dict[str, Any]:
    """Return the numbers of ``KEY=NUMBER,...`` by the field that each key sets."""
    settings = {}
    for key, value in key_values(text, where, TraceError, "KEY=NUMBER").items():
        if key not in takes:
            hint = did_you_mean(key, takes, f"it takes {', '.join(takes) or 'none'}")
            raise TraceError(f"{where}: unknown setting {key!r}; {hint}")
        settings[takes[key]] = _setting(f"{where}: {key}", value, takes[key] in whole)
    return settings


def _setting(where: str, text: str, whole: bool) -> float | int:
    number = _number(text)
    if number is None or (whole and not number.is_integer()):
        raise TraceError(f"{where}: {text!r} is not {'a whole number' if whole else 'a number'}")
    return int(number) if whole else number


def _number(text: str) -> float | None:
    try:
        return as_number(text)
    except ValueError:
        return None
