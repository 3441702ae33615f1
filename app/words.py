"""Words and looks that every screen shares: metrics, limits, and where step times come from.

They are in ``app/assets``.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from math import isfinite
from typing import TYPE_CHECKING, Any

from servetwin.sim.records.metrics import LIMITED, SLO, duration_unit
from servetwin.sim.step_times.provenance import MEANINGS, Origin
from servetwin.workloads.yaml_text import load_yaml

if TYPE_CHECKING:
    from servetwin.sim.experiments.capacity import SLOTarget
    from servetwin.sim.experiments.predict import Interval
    from servetwin.sim.explain.bottleneck import Resource


def asset(name: str) -> str:
    """Read a text of ``app/assets``."""
    return files("servetwin.app").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def asset_table(name: str) -> dict[str, Any]:
    """Return what a YAML file of ``app/assets`` holds, by name."""
    table: dict[str, Any] = load_yaml(asset(name))
    return table


def print_notes(notes: Iterable[str | None]) -> None:
    """Print what a user should know, beside the result; None is no note."""
    for note in filter(None, notes):
        sys.stderr.write(f"note: {note}\n")


@dataclass(frozen=True, slots=True)
class Metric:
    """A value times ``factor`` is in ``unit``."""

    label: str
    unit: str
    factor: float
    definition: str

    @property
    def title(self) -> str:
        """``TTFT, ms``; without a unit, the label alone."""
        return f"{self.label}, {self.unit}" if self.unit else self.label

    def fitting(self, values: Iterable[float | None]) -> "Metric":
        """Return the metric in the unit in which such ``values`` are shown (``duration_unit``)."""
        if self.unit != "ms":
            return self
        unit, factor = duration_unit(values)
        return replace(self, unit=unit, factor=factor)

    def scaled(self, value: float | None) -> float | None:
        """Return a value in ``unit``; None where it is undefined."""
        return None if value is None else value * self.factor


METRICS = {name: Metric(**words) for name, words in asset_table("metrics.yaml").items()}


# What limits a server, in words.
RESOURCES: "dict[Resource, str]" = asset_table("words.yaml")["resources"]


def slo_words(slo: SLO, sign: str = "") -> str:
    """Return an SLO in words: ``TTFT 500 ms, TPOT 50 ms``; ``sign`` stands before each limit."""
    limits_s = {name: getattr(slo, name) for name in LIMITED}
    limits = ((METRICS[name].fitting([limit_s]), limit_s) for name, limit_s in limits_s.items())
    return ", ".join(
        f"{metric.label} {sign}{metric.factor * limit_s:g} {metric.unit}"
        for metric, limit_s in limits
        if limit_s is not None
    )


# The colour of each origin, of a run, and the pattern over it.
LOOKS: dict[Origin, tuple[str, str]] = {
    origin: (colour, pattern)
    for origin, (colour, pattern) in asset_table("looks.yaml")["origins"].items()
}

_EXTRAPOLATED_PATTERN = "x"


@dataclass(frozen=True, slots=True)
class OriginShare:
    """The share of simulated time that comes from an origin, within its range or beyond it."""

    origin: Origin
    share: float
    is_extrapolated: bool = False

    @property
    def name(self) -> str:
        """The word, such as ``measured here`` or ``extrapolated from it``."""
        return "extrapolated from it" if self.is_extrapolated else self.origin

    @property
    def meaning(self) -> str:
        """A sentence on it."""
        if self.is_extrapolated:
            return "Steps larger than any whose time is known."
        return MEANINGS[self.origin]

    @property
    def look(self) -> tuple[str, str]:
        """Colour and pattern."""
        colour, pattern = LOOKS[self.origin]
        return colour, _EXTRAPOLATED_PATTERN if self.is_extrapolated else pattern


def origin_shares(provenance: Mapping[str, Any]) -> list[OriginShare]:
    """Return the shares of a run (``RunProvenance.as_dict``), which sum to 1.

    Older runs do not say where their step times come from.
    """
    return list(_shares(provenance))


def _shares(provenance: Mapping[str, Any]) -> Iterator[OriginShare]:
    if "origins" in provenance:
        origins, extrapolated = provenance["origins"], provenance["extrapolated"]
    else:
        beyond = provenance["shares"].get("extrapolated", 0.0)
        origins = {"not stated": 1.0} if provenance["shares"] else {}
        extrapolated = {"not stated": beyond}
    for origin in MEANINGS:
        share, beyond = origins.get(origin, 0.0), extrapolated.get(origin, 0.0)
        if share > beyond:
            yield OriginShare(origin, share - beyond)
        if beyond:
            yield OriginShare(origin, beyond, is_extrapolated=True)


def origin_words(origins: Iterable[Origin]) -> str:
    """Return origins as one phrase, such as ``measured here and kernel tables``."""
    *first, last = dict.fromkeys(origins)
    return f"{', '.join(first)} and {last}" if first else last


def origin_sentences(origins: Iterable[Origin]) -> str:
    """Return where step times come from, and what that means."""
    known = tuple(dict.fromkeys(origins))
    return " ".join([f"Step times: {origin_words(known)}.", *(MEANINGS[one] for one in known)])


def limited(target: "SLOTarget") -> list[str]:
    """Return the latencies that have a limit."""
    return [name for name in LIMITED if getattr(target.slo, name) is not None]


def target_words(target: "SLOTarget") -> str:
    """Return ``p99 TTFT below 500 ms``; of several limits, the share."""
    share = f"{100 * target.attainment:g}"
    names = limited(target)
    if len(names) > 1:
        return f"{slo_words(target.slo)} for {share} % of the requests"
    limit = f"{METRICS[names[0]].scaled(getattr(target.slo, names[0])):g}"
    return f"p{share} {METRICS[names[0]].label} below {limit} {METRICS[names[0]].unit}"


def axis_title(target: "SLOTarget") -> str:
    """Return what a factor on the limits stands for in ``scaled``."""
    names = limited(target)
    if len(names) > 1:
        return f"worst latency / its limit, p{100 * target.attainment:g}"
    return f"p{100 * target.attainment:g} {METRICS[names[0]].title}"


def scaled(target: "SLOTarget", factor: float) -> float:
    """Return a factor on the limits as the latency itself, where there is but one limit."""
    names = limited(target)
    if len(names) > 1:
        return factor
    metric = METRICS[names[0]]
    return factor * metric.factor * float(getattr(target.slo, names[0]))


def figure_words(
    target: "SLOTarget", factor: float, interval: tuple[float, float] | None = None
) -> str:
    """Return ``812 ms [700 to 1,020]``; of several limits, ``162 % of the limit``."""
    if not isfinite(factor):
        return "too many requests unanswered"
    if len(limited(target)) > 1:
        ends = f" [{' to '.join(f'{100 * end:.0f}' for end in interval)}]" if interval else ""
        return f"{100 * factor:.0f} % of the limit{ends}"
    ends = f" [{_scaled_ends(target, interval)}]" if interval else ""
    return f"{short(scaled(target, factor))} {METRICS[limited(target)[0]].unit}{ends}"


def short(value: float) -> str:
    """Return a number with three digits, whole from a hundred on."""
    if not isfinite(value):
        return "no end"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def in_brackets(figure: "Interval | None", unit: str = "") -> str:
    """Return a figure with the ends of its interval; ``-`` where there is none."""
    if figure is None:
        return "-"
    shown = ends(figure.low, figure.high, short)
    return f"{short(figure.value)}{unit}" + (f" [{' to '.join(shown)}]" if shown else "")


def _scaled_ends(target: "SLOTarget", interval: tuple[float, float]) -> str:
    return " to ".join(short(scaled(target, end)) for end in interval)


def ends(low: float, high: float, form: Callable[[float], str]) -> tuple[str, str] | None:
    """Return both ends of an interval as they are shown; None where they would look the same."""
    shown = form(low), form(high)
    return None if shown[0] == shown[1] else shown


def number(value: Any, factor: float) -> str:
    """Return a value times ``factor``: four digits, with commas from a thousand on; - for None."""
    if value is None:
        return "-"
    scaled = value * factor
    return f"{scaled:,.0f}" if abs(scaled) >= 1000 else f"{scaled:.4g}"
