"""Arrivals, lengths and shared prefixes of a generated workload, by name and numbers."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from difflib import get_close_matches
from math import exp, sqrt
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from typer import Option

from servetwin.app.scenario.options.groups import as_number
from servetwin.workloads.errors import TraceError, did_you_mean
from servetwin.workloads.generators.processes import ARRIVALS, arrival_settings
from servetwin.workloads.key_values import key_values
from servetwin.workloads.plugins import split_settings

if TYPE_CHECKING:
    from servetwin.workloads.generators.arrivals import ArrivalProcess
    from servetwin.workloads.generators.lengths import TokenLaw
    from servetwin.workloads.generators.modulated import RateCurve
    from servetwin.workloads.generators.pauses import PauseDistribution
    from servetwin.workloads.generators.prefixes import PrefixStructure

LENGTHS = ("fixed", "uniform", "exponential", "lognormal", "zipf", "pareto")
STRUCTURES = ("independent", "shared-prefix", "tree", "multi-turn", "agentic")
THINK_TIMES = ("lognormal", "exponential")

_Z95 = 1.6448536269514722
"""The 95 % point of the standard normal distribution."""


@dataclass(frozen=True, slots=True)
class ArrivalChoice:
    """An arrival process by name, and the curve of a day around it.

    On the command line a name may carry its settings, ``gamma:cv=2`` (``distribution_specs``).
    """

    PANEL: ClassVar = "Arrivals"

    name: Annotated[
        str,
        Option(
            "--arrivals", help=f"{', '.join(ARRIVALS)}, path.py:Class; with settings: gamma:cv=2."
        ),
    ] = "poisson"
    rate_per_s: Annotated[float, Option("--rate")] = 4.0
    """Mean arrivals per second (of sessions, if any)."""
    cv: Annotated[float, Option(help="{workload.cv}")] = 1.2
    clients: Annotated[int, Option()] = 50
    """How many clients."""
    on_s: Annotated[float, Option()] = 11.3
    """Mean seconds on (mmpp2)."""
    off_s: Annotated[float, Option()] = 46.5
    """Mean seconds off (mmpp2)."""
    diurnal: Annotated[bool, Option("--diurnal")] = False
    """The rate follows a day."""
    peak_to_trough: Annotated[float, Option("--peak-trough")] = 2.2
    """Peak over trough of a day."""
    hourly: Annotated[str | None, Option()] = None
    """Rates of the parts of a day: 1,0.5,..."""
    period_s: Annotated[float, Option("--period")] = 86_400.0
    """Seconds of a day, or of a ramp."""
    from_per_s: float | None = None
    to_per_s: float | None = None
    steps: int | None = None

    settings: tuple[tuple[str, float], ...] = ()
    """What a process takes beside the fields above."""

    def process(self) -> "ArrivalProcess":
        """Return the process.

        Raises ``TraceError`` for an unknown name or an impossible number, ``PluginError`` for a
        class of a file that cannot be used.
        """
        curve = self._curve()
        around = ARRIVALS.build(self.name, self.rate_per_s, **self._settings())
        if curve is None:
            return around
        from servetwin.workloads.generators.modulated import DiurnalArrivals

        if self.name == "ramp":
            raise TraceError("--arrivals ramp: excludes --diurnal and --hourly")
        if not is_dataclass(around):
            raise TraceError(
                f"--arrivals {self.name}: for --diurnal and --hourly it must be a dataclass with a "
                "field rate_per_s"
            )
        return DiurnalArrivals(around, curve, self.period_s)

    def _curve(self) -> "RateCurve | None":
        from servetwin.workloads.generators.modulated import Sinusoid, Steps

        if self.hourly is not None:
            return Steps(numbers("--hourly", self.hourly))
        return Sinusoid(self.peak_to_trough) if self.diurnal else None

    def _settings(self) -> dict[str, Any]:
        """Return the fields that a registered process takes, and the settings."""
        takes = [p.name for p in arrival_settings(self.name).values() if self.name in ARRIVALS]
        fields = {name: getattr(self, name) for name in takes if name in self.__slots__}
        return {**fields, **dict(self.settings)}


@dataclass(frozen=True, slots=True)
class LengthChoice:
    """A distribution of lengths by name; ``part`` is prompt or output, as in its options."""

    part: str
    name: str
    mean_tokens: float
    cv: float
    max_tokens: int | None = None
    zipf: float = 1.1
    tail_alpha: float = 2.2

    def distribution(self) -> "TokenLaw":
        """Return the distribution.

        Raises ``TraceError`` for an unknown name or an impossible number.
        """
        from servetwin.workloads.generators import lengths

        mean, most = self.mean_tokens, self.max_tokens
        match known(f"--{self.part}-law", self.name, LENGTHS):
            case "fixed":
                return lengths.FixedTokens(round(mean))
            case "exponential":
                return lengths.ExponentialTokens(mean, most)
            case "zipf":
                return lengths.ZipfTokens(self.zipf, self._largest())
            case "uniform":
                half = sqrt(3) * self.cv * mean
                least, largest = max(1, round(mean - half)), round(mean + half)
                return lengths.UniformTokens(least, min(largest, most or largest))
        body = lengths.LognormalTokens.from_mean(mean, self.cv, max_tokens=most)
        if self.name == "lognormal":
            return body
        return lengths.ParetoTailTokens(body, exp(body.mu + _Z95 * body.sigma), self.tail_alpha)

    def _largest(self) -> int:
        if self.max_tokens is None:
            raise TraceError(f"zipf lengths want a largest one: give --{self.part}-max")
        return self.max_tokens


@dataclass(frozen=True, slots=True)
class PrefixChoice:
    """What prompts share; without a ``structure``, the number of groups decides."""

    PANEL: ClassVar = "Structure"

    structure: Annotated[str | None, Option(help=", ".join(STRUCTURES))] = None
    groups: Annotated[int, Option("--prefix-groups")] = 0
    """Shared prefixes; 0 for none."""
    prefix_tokens: Annotated[int, Option()] = 64
    """Tokens of each prefix."""
    zipf: Annotated[float, Option("--prefix-zipf")] = 1.0
    """Popularity exponent; 0 is even."""
    branching: Annotated[int, Option()] = 8
    """Children of a tree's node."""
    levels: Annotated[int, Option()] = 4
    """Levels of a tree."""
    node_tokens: Annotated[int, Option()] = 256
    """Tokens of a tree's node."""
    descend: Annotated[float, Option()] = 0.8
    """Chance to take one more node."""
    block_tokens: Annotated[int | None, Option()] = None
    """Tokens per prefix id; else 16, agentic 64."""

    @property
    def name(self) -> str:
        """The structure. Raises ``TraceError`` for an unknown one."""
        if self.structure is None:
            return "shared-prefix" if self.groups else "independent"
        return known("--structure", self.structure, STRUCTURES)

    def prefixes(self) -> "PrefixStructure | None":
        """Return the structure of independent requests; None where they share nothing."""
        from servetwin.workloads.generators.prefixes import PrefixGroups, PrefixTree

        block_tokens = self.block_tokens or DEFAULT_BLOCK_TOKENS
        if self.name == "shared-prefix":
            groups = self.groups or DEFAULT_GROUPS
            return PrefixGroups(groups, self.prefix_tokens, self.zipf, block_tokens)
        if self.name != "tree":
            return None
        shape = self.branching, self.levels, self.node_tokens
        return PrefixTree(*shape, self.descend, self.zipf, block_tokens)


DEFAULT_GROUPS = 64
DEFAULT_BLOCK_TOKENS = 16
DEFAULT_PROMPT = LengthChoice("prompt", "lognormal", 128.0, 0.8)
DEFAULT_OUTPUT = LengthChoice("output", "lognormal", 24.0, 0.6)


def known(option: str, name: str, names: Sequence[str]) -> str:
    """Return ``name``; raises ``TraceError`` with the nearest name if ``names`` has no such."""
    if name in names:
        return name
    nearest = get_close_matches(name, names, 1, 0)[0]
    raise TraceError(
        f"{option}: unknown {name!r}: did you mean {nearest!r}? known: {', '.join(names)}"
    )


def numbers(option: str, text: str) -> tuple[float, ...]:
    """Return numbers that commas separate."""
    try:
        return tuple(as_number(part) for part in text.split(","))
    except ValueError:
        raise TraceError(f"{option}: wants numbers separated by commas, not {text!r}") from None


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
    known_fields: dict[str, Any] = {
        f: v for f, v in settings.items() if name in ARRIVALS and f in ArrivalChoice.__slots__
    }
    others = tuple((field, value) for field, value in settings.items() if field not in known_fields)
    return replace(base, name=name, **known_fields, settings=others)


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
