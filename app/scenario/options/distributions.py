"""Arrivals, lengths, pauses and shared prefixes of a generated workload, as people write them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from math import exp, isnan, sqrt
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

from typer import Option

from servetwin.workloads.errors import TraceError, require_name
from servetwin.workloads.generators.processes import ARRIVALS, arrival_settings
from servetwin.workloads.graphs.lane_rules import AGENTX, LaneRules
from servetwin.workloads.plugins import split_settings
from servetwin.workloads.program.key_values import key_values, number_in
from servetwin.workloads.program.package import shipped_json

if TYPE_CHECKING:
    from servetwin.workloads.generators.arrivals import ArrivalProcess
    from servetwin.workloads.generators.lengths import IndependentLengths, TokenLaw
    from servetwin.workloads.generators.modulated import RateCurve
    from servetwin.workloads.generators.pauses import PauseDistribution
    from servetwin.workloads.generators.prefixes import PrefixGroups

# The fields that keys set, by name of a distribution (of lengths, of pauses) or rules of lanes.
_KEYS: Mapping[str, Mapping[str, Mapping[str, str]]] = shipped_json(
    "app/scenario/options/distributions.json"
)
LENGTHS = tuple(_KEYS["lengths"])
STRUCTURES = ("independent", "shared-prefix", "multi-turn", "agentic")

# The 95 % point of the standard normal distribution.
_Z95 = 1.6448536269514722
_LENGTH_FORM = "N|DISTRIBUTION[:KEY=N,...]"
PromptTokens = Annotated[
    str | None,
    Option(
        metavar=_LENGTH_FORM,
        help=f"Generated prompts: 512, or {', '.join(LENGTHS)}, such as "
        "lognormal:mean=512,cv=0.8,max=4096.",
        rich_help_panel="Lengths",
    ),
]
OutputTokens = Annotated[
    str | None,
    Option(
        metavar=_LENGTH_FORM,
        help="Generated outputs, alike; in a load test also those of real prompts.",
        rich_help_panel="Lengths",
    ),
]


@dataclass(frozen=True, slots=True)
class ArrivalChoice:
    """An arrival process with its settings (``gamma:cv=2``), and the curve of a day around it."""

    PANEL: ClassVar = "Arrivals"

    text: Annotated[
        str,
        Option(
            "--arrivals",
            metavar="PROCESS[:KEY=N,...]",
            help=f"{', '.join(ARRIVALS)}, path.py:Class; with settings: gamma:cv=2.",
        ),
    ] = "poisson"
    rate_per_s: Annotated[float, Option("--rate")] = 4.0
    """Mean arrivals per second (of sessions, if any)."""
    diurnal: Annotated[bool, Option("--diurnal")] = False
    """The rate follows a day."""
    peak_to_trough: Annotated[float, Option("--peak-trough")] = 2.2
    """Peak over trough of a day."""
    hourly: Annotated[str | None, Option()] = None
    """Rates of the parts of a day: 1,0.5,..."""
    period_s: Annotated[float, Option("--period")] = 86_400.0
    """Seconds of a day, or of a ramp."""

    def process(self) -> "ArrivalProcess":
        """Return the process.

        Raises ``TraceError`` for an unknown name, setting or an impossible number, ``PluginError``
        for a class of a file that cannot be used.
        """
        name, parameters = split_settings(self.text)
        curve = self._curve()
        around = ARRIVALS.build(name, self.rate_per_s, **self._settings(name, parameters))
        if curve is None:
            return around
        from servetwin.workloads.generators.modulated import DiurnalArrivals

        if name == "ramp":
            raise TraceError("--arrivals ramp: excludes --diurnal and --hourly")
        if not is_dataclass(around):
            raise TraceError(
                f"--arrivals {name}: for --diurnal and --hourly it must be a dataclass with a "
                "field rate_per_s"
            )
        return DiurnalArrivals(around, curve, self.period_s)

    def _curve(self) -> "RateCurve | None":
        from servetwin.workloads.generators.modulated import Sinusoid, Steps

        if self.hourly is not None:
            return Steps(numbers("--hourly", self.hourly))
        return Sinusoid(self.peak_to_trough) if self.diurnal else None

    def _settings(self, name: str, parameters: str) -> dict[str, Any]:
        takes = arrival_settings(name)
        fields = {key: p.name for key, p in takes.items()}
        whole = [p.name for p in takes.values() if re.search(r"\bint\b", str(p.annotation))]
        period = {"period_s": self.period_s} if name == "ramp" else {}
        return period | _parse_settings(f"--arrivals {name}", parameters, fields, whole)


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
    block_tokens: Annotated[int | None, Option()] = None
    """Tokens per prefix id; else 16, agentic 64."""

    @property
    def name(self) -> str:
        """The structure. Raises ``TraceError`` for an unknown one."""
        if self.structure is None:
            return "shared-prefix" if self.groups else "independent"
        require_name(self.structure, STRUCTURES, "--structure: unknown", TraceError)
        return self.structure

    def prefixes(self) -> "PrefixGroups | None":
        """Return the prefixes of independent requests; None where they share nothing."""
        from servetwin.workloads.generators.prefixes import PrefixGroups
        from servetwin.workloads.request import BLOCK_TOKENS

        if self.name != "shared-prefix":
            return None
        sizes = self.groups or DEFAULT_GROUPS, self.prefix_tokens
        return PrefixGroups(*sizes, self.zipf, self.block_tokens or BLOCK_TOKENS)


DEFAULT_GROUPS = 64


class UsualLengths(NamedTuple):
    """Mean and CV of lengths where a text does not say them."""

    mean: float
    cv: float


# The distribution of lengths where none is named.
USUAL = "lognormal"
USUAL_PROMPTS, USUAL_OUTPUTS = UsualLengths(128.0, 0.8), UsualLengths(24.0, 0.6)


def numbers(option: str, text: str) -> tuple[float, ...]:
    """Return numbers that commas separate."""
    values = tuple(map(number_in, text.split(",")))
    if any(map(isnan, values)):
        raise TraceError(f"{option}: wants numbers separated by commas, not {text!r}")
    return values


LANES_FORM = "N[:agentx][,KEY=N,...]"
_WHOLE = ("max",)


def independent_lengths(prompts: str | None, outputs: str | None) -> "IndependentLengths":
    """Return the lengths of generated requests by the texts of the two options."""
    from servetwin.workloads.generators.lengths import IndependentLengths

    return IndependentLengths(
        lengths_of(prompts or USUAL, USUAL_PROMPTS, "--prompt-tokens"),
        lengths_of(outputs or USUAL, USUAL_OUTPUTS, "--output-tokens"),
    )


def lengths_of(text: str, usual: UsualLengths, option: str) -> "TokenLaw":
    """Return the distribution of lengths in ``text``; a number alone is a fixed length.

    Raises ``TraceError`` naming the option, the part that is wrong and what is valid.
    """
    from servetwin.workloads.generators import lengths

    if text.isascii() and text.isdigit():
        return lengths.FixedTokens(int(_setting(option, text, whole=True)))
    name, given = parse_spec(text, option, _KEYS["lengths"])
    mean, cv, most = given.get("mean", usual.mean), given.get("cv", usual.cv), given.get("max")
    match name:
        case "fixed":
            return lengths.FixedTokens(round(mean))
        case "exponential":
            return lengths.ExponentialTokens(mean, most)
        case "uniform":
            half = sqrt(3) * cv * mean
            least, largest = max(1, round(mean - half)), round(mean + half)
            return lengths.UniformTokens(least, min(largest, most or largest))
    body = lengths.LognormalTokens.from_mean(mean, cv, max_tokens=most)
    if name == "lognormal":
        return body
    tail_from = exp(body.mu + _Z95 * body.sigma)
    return lengths.ParetoTailTokens(body, tail_from, given.get("alpha", 2.2))


def think_time_of(text: str, option: str = "--think-time") -> "PauseDistribution":
    """Return the distribution of think times in ``text``; a number alone is a fixed time in
    seconds."""
    from servetwin.workloads.generators.pauses import ExponentialPause, LognormalPause

    if not isnan(fixed_s := number_in(text)):
        return LognormalPause(fixed_s, sigma=0.0)
    name, settings = parse_spec(text, option, _KEYS["pauses"])
    if name == "lognormal":
        return LognormalPause(**settings)
    if not settings:
        raise TraceError(f"{option} {text!r}: wants its mean, such as exponential:mean=2")
    return ExponentialPause(**settings)


def lanes_of(text: str, seed: int) -> LaneRules:
    """Read the lanes of ``8``, ``8:agentx`` or ``8:idle=10,duration=900``."""
    count, _, settings = text.partition(":")
    if not re.fullmatch(r"\d{1,6}", count, re.ASCII):
        raise TraceError(f"--lanes {text!r}: {count!r} is no number of lanes; write {LANES_FORM}")
    name, _, rest = settings.partition(",")
    is_agentx = name == AGENTX["scenario"]
    spec = f"{name}:{rest}" if is_agentx else f"rules:{settings}"
    _, values = parse_spec(spec, "--lanes", _KEYS["lanes"])
    return LaneRules(int(count), seed=seed, **(AGENTX if is_agentx else {}) | values)


def parse_spec(
    text: str, option: str, keys: Mapping[str, Mapping[str, str]]
) -> tuple[str, dict[str, Any]]:
    """Read ``NAME:KEY=NUMBER,...``; ``keys`` has, by name, the fields that its keys set."""
    name, parameters = split_settings(text)
    require_name(name, keys, f"{option}: unknown", TraceError)
    return name, _parse_settings(f"{option} {name}", parameters, keys[name], _WHOLE)


def _parse_settings(
    where: str, text: str, takes: Mapping[str, str], whole: Sequence[str]
) -> dict[str, Any]:
    """Return the numbers of ``KEY=NUMBER,...`` by the field that each key sets."""
    settings = {}
    for key, value in key_values(text, where, TraceError, "KEY=NUMBER").items():
        others = f"it takes {', '.join(takes) or 'none'}"
        require_name(key, takes, f"{where}: unknown setting", TraceError, others)
        settings[takes[key]] = _setting(f"{where}: {key}", value, takes[key] in whole)
    return settings


def _setting(where: str, text: str, whole: bool) -> float | int:
    number = number_in(text)
    if isnan(number) or (whole and not number.is_integer()):
        raise TraceError(f"{where}: {text!r} is not {'a whole number' if whole else 'a number'}")
    return int(number) if whole else number
