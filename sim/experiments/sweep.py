"""A grid: scenarios at rates, the figures of its points, and the Pareto front of two of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from servetwin.sim.experiments.predict import run_once
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.records.columns import AnyArray, Frame
from servetwin.sim.records.metrics import MEANINGS, SLO, figure
from servetwin.workloads.errors import PluginError, ServetwinError
from servetwin.workloads.trace import Trace
from servetwin.workloads.transform import at_rate

Row = dict[str, Any]

_PERCENTILES = [(name, p) for name in ("ttft", "tpot", "e2e") for p in ("p50", "p90", "p99")]

# The figures of a point; seconds, unless the name says otherwise.
FIGURE_MEANINGS = MEANINGS["points"]

# The figures that are whole numbers.
COUNTS = ("servers", "finished", "refused", "preemptions")

# Why a point could not be simulated; empty if it could.
PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class GridConditions:
    """The inputs that all points of a grid share."""

    trace: Trace
    slo: SLO
    seed: int = 0


@dataclass(frozen=True, slots=True)
class GridPoint:
    """A scenario at a rate in requests per second; None is the trace's own."""

    scenario: Scenario
    rate_per_s: float | None = None


def simulate_point(conditions: GridConditions, point: GridPoint) -> Row:
    """Return the figures of a point, or its problem: an impossible point does not end a grid."""
    trace, rate_per_s = conditions.trace, point.rate_per_s
    try:
        scaled = trace if rate_per_s is None else at_rate(trace, rate_per_s)
        run = run_once(scaled, point.scenario, seed=conditions.seed)
    except PluginError:  # a fault of the plug-in, not of this point
        raise
    except ServetwinError as error:
        return {PROBLEM: str(error)}
    return {**figures_of(run.summary(conditions.slo), len(point.scenario.servers())), PROBLEM: ""}


def figures_of(summary: Mapping[str, Any], servers: int) -> Row:
    """Return the ``FIGURE_MEANINGS`` of a summary with an SLO; None for an undefined figure."""
    tpot_s = figure(summary, "tpot_s.p50")
    goodput = figure(summary, "goodput_per_s")
    throughput = figure(summary, "output_throughput_tokens_per_s")
    return {
        "servers": servers,
        "finished": summary["requests"]["finished"],
        "refused": summary["requests"]["refused"],
        "slo_attainment": summary["slo_attainment"],
        "goodput_per_s": goodput,
        "goodput_per_server_per_s": _per(goodput, servers),
        "output_throughput_tokens_per_s": throughput,
        "output_tokens_per_server_per_s": _per(throughput, servers),
        "interactivity_tokens_per_s": 1 / tpot_s if tpot_s else None,
        **{f"{n}_s_{part}": figure(summary, f"{n}_s.{part}") for n, part in _PERCENTILES},
        "preemptions": summary["preemptions"],
        "makespan_s": summary["makespan_s"],
    }


def _per(value: float | None, servers: int) -> float | None:
    return None if value is None else value / servers


INTERACTIVITY = "interactivity_tokens_per_s"
GOODPUT = "goodput_per_server_per_s"
THROUGHPUT = "output_tokens_per_server_per_s"


def on_front(points: Frame, x: str, y: str) -> AnyArray:
    """Return which points are on the Pareto front, more being better in both figures.

    A point is on the front if no other is at least as good in both figures and better in one.
    Points with an undefined figure are not.
    """
    of_x, of_y = (points[name].to_numpy(dtype=float) for name in (x, y))
    better_x, better_y = of_x > of_x[:, None], of_y > of_y[:, None]
    as_good = (of_x >= of_x[:, None]) & (of_y >= of_y[:, None])
    beaten = (as_good & (better_x | better_y)).any(axis=1)
    return np.asarray(~beaten & np.isfinite(of_x) & np.isfinite(of_y))


def best_point(points: Frame, y: str, attainment: float) -> int | None:
    """Return the row label of the highest ``y`` among the points that meet the SLO; None if none.

    Among equals the highest interactivity wins.
    """
    keeping = points[points["slo_attainment"].astype(float) >= attainment]
    keeping = keeping.dropna(subset=[y])
    if keeping.empty:
        return None
    label = keeping.sort_values([y, INTERACTIVITY], ascending=False).index[0]
    return int(label)
