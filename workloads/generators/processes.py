"""The registered arrival processes, and the settings that each takes."""

import inspect
from typing import TYPE_CHECKING, Any

from servetwin.workloads.errors import TraceError
from servetwin.workloads.plugins import Registry

if TYPE_CHECKING:
    from servetwin.workloads.generators.arrivals import ArrivalProcess

ARRIVALS: "Registry[ArrivalProcess]" = Registry(
    "--arrivals",
    "arrival process",
    "servetwin.workloads.generators.arrivals:ArrivalProcess",
    "rate_per_s, **settings",
    {
        "constant": "servetwin.workloads.generators.arrivals:ConstantArrivals",
        "poisson": "servetwin.workloads.generators.arrivals:PoissonArrivals",
        "gamma": "servetwin.workloads.generators.arrivals:GammaArrivals",
        "weibull": "servetwin.workloads.generators.arrivals:WeibullArrivals",
        "mmpp2": "servetwin.workloads.generators.modulated:OnOffArrivals",
        "ramp": "servetwin.workloads.generators.modulated:ramp_arrivals",
    },
    error=TraceError,
    checks="servetwin.workloads.generators.processes:RETURNED",
)


def arrival_settings(name: str) -> dict[str, inspect.Parameter]:
    """Return what the process takes beside its rate, by key: ``on`` for its parameter ``on_s``.

    Raises ``TraceError`` for an unknown name, ``PluginError`` for a class that cannot be loaded.
    """
    takes = list(inspect.signature(ARRIVALS.find(name)).parameters.values())[1:]
    return {p.name.removesuffix("_per_s").removesuffix("_s"): p for p in takes}


def plain_arrivals() -> list[str]:
    """Return the processes that need no more than a rate."""
    return [
        name
        for name in ARRIVALS
        if all(takes.default is not None for takes in arrival_settings(name).values())
    ]


def _wrong_gaps(gaps_s: Any, count: int, rng: object) -> str | None:
    import numpy as np

    if gaps_s.shape != (count,):
        return f"an array of shape {gaps_s.shape}, not {count} gaps"
    if not (np.isfinite(gaps_s).all() and (gaps_s >= 0).all()):
        return "a gap that is no number from 0 up"
    return "gaps that are all 0" if count and not gaps_s.any() else None


RETURNED = {"gaps_s": _wrong_gaps}
