"""What a simulated run rests on, in words: a line of the report, and a warning."""

from collections.abc import Mapping
from typing import Any

from servetwin.app.reports.assets import asset_table
from servetwin.app.reports.origins import origin_shares

WARN_ABOVE = 0.001
"""Share of simulated time outside the range of its profile that is worth a warning."""


def rests_line(provenance: Mapping[str, Any]) -> str:
    """Return ``rests on   measured here 93.1 %, extrapolated from it 6.9 % of simulated time``."""
    shares = shares_in_words(provenance)
    return f"rests on   {shares} of simulated time" if shares else "no step was run"


def shares_in_words(provenance: Mapping[str, Any]) -> str:
    """Return ``measured here 93.1 %, extrapolated from it 6.9 %``; empty where no step was run."""
    shares = origin_shares(provenance)
    return ", ".join(f"{one.name} {_percent(one.share)}" for one in shares)


def outside_warning(provenance: Mapping[str, Any], widened: bool) -> str | None:
    """Which range was left and how far, where that matters; ``widened`` are the intervals."""
    share = provenance["shares"].get("extrapolated", 0.0)
    if share <= WARN_ABOVE:
        return None
    profiles = dict.fromkeys(excess["profile"] for excess in provenance["outside"])
    what = "; also ".join(_excess(excess) for excess in provenance["outside"])
    end = "intervals are widened there" if widened else "the error there is unknown"
    several = "s" if len(profiles) > 1 else ""
    return (
        f"warning: {_percent(share)} of the simulated time lies outside the range of "
        f"profile{several} {', '.join(profiles)} ({what}): {end}"
    )


def _excess(excess: Mapping[str, Any]) -> str:
    reached = asset_table("words.yaml")["features"][excess["feature"]].format(
        f"{excess['value']:,.0f}"
    )
    return f"{reached}; known up to {excess['measured']:,.0f}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
