"""Where step times come from (``step_times.provenance``): the looks, and the shares of a run."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from servetwin.app.words import asset_table
from servetwin.sim.step_times.provenance import MEANINGS, Origin

LOOKS: dict[Origin, tuple[str, str]] = {
    origin: (colour, pattern)
    for origin, (colour, pattern) in asset_table("looks.yaml")["origins"].items()
}
"""The colour of each origin, of ``app.figures.palette``, and the pattern over it."""

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
    found = tuple(dict.fromkeys(origins))
    return " ".join([f"Step times: {origin_words(found)}.", *(MEANINGS[one] for one in found)])
