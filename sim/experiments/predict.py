"""A prediction with its interval: the same trace, simulated over drawn coefficients and noise.

Each replication draws the step-time coefficients (their covariance, and the drift between
calibration rounds) and the noise of every step. Replication ``r`` of seed ``s`` draws the same
numbers whatever the policy: common random numbers, so policies are compared on equal terms.

Where a step is outside the range of the calibration, the replications also draw how much the
unmeasured part costs (``sim.step_times.extrapolation``). A generated workload may be drawn again in
each replication: the interval then includes its randomness.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.sim.core.recorder import Recorder
from servetwin.sim.experiments.scenario import Scenario, replicate
from servetwin.sim.records.columns import Frame, columns_of, rows_of
from servetwin.sim.records.metrics import LATENCIES, VISIBLE, figure
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.provenance import Source, Sourced, run_provenance
from servetwin.sim.step_times.server_model import ServerModel
from servetwin.workloads.trace import Trace

REPLICATIONS = 200
INTERVAL = (0.05, 0.95)
_MEANS = ("request_id", *LATENCIES, VISIBLE)
# The stream of a replication's seed that follows the four that ``replicate`` spawns.
_WORKLOAD_STREAM = 4

# Returns the workload of a seed and the scenario that fits it.
Redraw = Callable[[int], tuple[Trace, Scenario]]


@dataclass(frozen=True, slots=True)
class Interval:
    """A predicted figure: median, 5 % and 95 % quantiles over the replications.

    The median, because latency near saturation is a convex function of step time: a few slow draws
    would pull a mean far away from every single run. ``standard_error`` is its Monte-Carlo error.
    The quantiles are those between which another run lies with a chance of 90 %, whatever the
    number of replications (type 6 of Hyndman and Fan, "Sample quantiles in statistical packages",
    1996).
    """

    value: float
    low: float
    high: float
    standard_error: float = 0.0

    @classmethod
    def over(cls, values: Sequence[float]) -> "Interval":
        """Return the interval of a figure that had these values in the replications."""
        points = (INTERVAL[0], 0.5, INTERVAL[1])
        low, middle, high = np.quantile(values, points, method="weibull").tolist()
        return cls(middle, low, high, _median_error(values))


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted result of a policy on a trace.

    ``run`` is on the fitted coefficients, ``summaries`` are those of the replications, ``requests``
    has the mean latencies of each request over all (``mean_requests``).
    """

    run: Run
    summaries: list[dict[str, Any]]
    requests: Frame

    def interval(self, metric: str) -> Interval | None:
        """Return a figure (``ttft_s.p90``) with its interval; None if it is undefined."""
        return interval(self.summaries, metric)


def run_once(
    trace: Trace,
    scenario: Scenario,
    *,
    seed: int = 0,
    macro: bool = True,
    keep_usage: bool = False,
    on_arrival: Callable[[int], None] | None = None,
) -> Run:
    """Simulate a scenario once, with the fitted coefficients and noise."""
    first = replication_seed(seed, 0)
    recorder = Recorder(scenario.profile.api.model(), keep_usage=keep_usage)
    run = replicate(trace, scenario, first, macro=macro, on_arrival=on_arrival, recorder=recorder)
    return _with_provenance(run, scenario)


def predict(
    trace: Trace,
    config: PolicyConfig,
    profile: ServerModel,
    *,
    seed: int = 0,
    replications: int = REPLICATIONS,
) -> Prediction:
    """Simulate ``trace`` under ``config`` on the engine of ``profile``, with intervals."""
    scenario = Scenario(config, profile)
    run = run_once(trace, scenario, seed=seed)
    summaries, frames = [], [run.requests]
    for number in range(replications):
        drawn = replication(trace, scenario, number, seed=seed, extrapolate=is_outside(run))
        summaries.append(drawn.summary())
        frames.append(drawn.requests.filter(items=_MEANS))
    return Prediction(run, summaries, mean_requests(frames))


def mean_requests(frames: Sequence[Frame]) -> Frame:
    """Return the mean latencies of each request over runs of the same trace.

    Columns: ``request_id``, ``LATENCIES``, and ``VISIBLE`` where requests reason, in seconds;
    undefined where no run has them.
    """
    import pandas as pd

    rows = pd.concat([frame.filter(items=_MEANS) for frame in frames])
    return rows.groupby("request_id", sort=False).mean().reset_index()


def replication(
    trace: Trace,
    scenario: Scenario,
    number: int,
    *,
    seed: int,
    extrapolate: bool,
    redraw: Redraw | None = None,
) -> Run:
    """Simulate replication ``number``, from 0 on: drawn coefficients and noise.

    ``extrapolate`` says whether ``run_once`` of the same was outside of what was measured
    (``is_outside``). ``redraw`` draws a workload; None keeps the trace. It gets the same number
    whatever the scenario.
    """
    child = replication_seed(seed, number + 1)
    extrapolate = extrapolate and not scenario.is_certain()
    if redraw:
        trace, scenario = redraw(workload_seed(child))
    return replicate(trace, scenario, child, draw=True, extrapolate=extrapolate)


def interval(summaries: Iterable[Mapping[str, Any]], metric: str) -> Interval | None:
    """Return a figure (``ttft_s.p90``) over the replications; None if it is undefined."""
    values = [v for s in summaries if (v := figure(s, metric)) is not None]
    return Interval.over(values) if values else None


def difference(
    a: Iterable[Mapping[str, Any]], b: Iterable[Mapping[str, Any]], metric: str
) -> Interval | None:
    """Return the interval of b - a, replication by replication.

    Both are of the same seed, so what they share (the workload, the draws) cancels. None if no
    replication has both figures. Raises ``ValueError`` if their numbers differ.
    """
    pairs = [(figure(x, metric), figure(y, metric)) for x, y in zip(a, b, strict=True)]
    values = [y - x for x, y in pairs if x is not None and y is not None]
    return Interval.over(values) if values else None


def _median_error(values: Sequence[float]) -> float:
    """Return the standard error of the median: half the distance of the ranks one sigma off."""
    off = 0.5 / math.sqrt(len(values))
    below, above = np.quantile(values, (max(0.0, 0.5 - off), min(1.0, 0.5 + off)))
    return float(above - below) / 2


def runs_over_seeds(
    trace: Trace, scenario: Scenario, *, seed: int = 0, replications: int = REPLICATIONS
) -> list[Run]:
    """Return runs over drawn coefficients and noise, which are the same for every policy."""
    may_leave = not all(type(source) is Source for source in sources(scenario))
    extrapolate = may_leave and is_outside(run_once(trace, scenario, seed=seed))
    draws = (
        replication(trace, scenario, number, seed=seed, extrapolate=extrapolate)
        for number in range(replications)
    )
    return [_with_provenance(run, scenario) for run in draws]


def replication_seed(seed: int, number: int) -> np.random.SeedSequence:
    """Return a new seed sequence of a replication from 1 on, or of the fitted coefficients: 0.

    It is the child of this number that ``SeedSequence.spawn`` gives.
    """
    return np.random.SeedSequence(seed, spawn_key=(number,))


def workload_seed(child: np.random.SeedSequence) -> int:
    """Return the seed of the workload of a replication, which has this seed sequence."""
    sequence = np.random.SeedSequence(child.entropy, spawn_key=(*child.spawn_key, _WORKLOAD_STREAM))
    return int(sequence.generate_state(1)[0])


def _with_provenance(run: Run, scenario: Scenario) -> Run:
    run.extra["provenance"] = run_provenance(run.table("steps"), sources(scenario)).as_dict()
    return run


def is_outside(run: Run) -> bool:
    """Return whether step times of a run were extrapolated."""
    return "extrapolated" in run.extra["provenance"]["shares"]


def sources(scenario: Scenario) -> list[Source]:
    """Return the provenance of the step times of each replica, one for all of a pool."""
    layout = build_scheduler(scenario.policies).memory.layout
    by_profile = {
        id(one): one.source(layout) if isinstance(one, Sourced) else Source(origin=one.origin)
        for one in scenario.profiles
    }
    return [by_profile[id(server)] for server in scenario.replicas()]


@dataclass(frozen=True, slots=True)
class Energy:
    """Joules of all devices; per output token (None: there are none) and per second, the interval.

    ``unmeasured`` names the devices and models of which the fit had no measurement.
    """

    joules: float
    joules_per_token: Interval | None
    mean_watts: Interval
    unmeasured: tuple[str, ...]


def require_energy(scenario: Scenario) -> None:
    """Raise ``PolicyError`` where the energy of a server is not known."""
    from servetwin.sim.step_times.roofline.power import powered

    for server in scenario.profiles:
        powered(server)


def run_energy(run: Run, scenario: Scenario) -> Energy:
    """Return the energy from the first step to the last, idle servers included.

    Raises ``PolicyError`` as ``powered`` does.
    """
    from servetwin.sim.step_times.roofline.power import full_power_s, powered, unmeasured

    steps, ranks = columns_of(run.table("steps")), scenario.cluster.ranks
    span_s = float(steps["end_s"].max() - steps["start_s"].min())
    paid_h = run.extra.get("fleet", {}).get("hours_by_replica")
    joules, first, never = 0.0, 0, dict[str, None]()
    for server, count, _ in scenario.pools():
        (deployment, watts), last = powered(server), first + count * ranks
        here = (steps["replica"] >= first) & (steps["replica"] < last)
        on_s = (last - first) * span_s if paid_h is None else 3600 * sum(paid_h[first:last])
        shares_s = full_power_s(deployment, rows_of(steps, here), on_s)
        joules += watts * deployment.parallel.devices / ranks * shares_s
        first = last
        never |= dict.fromkeys(unmeasured(deployment))
    tokens = float(run.table("requests")["output_tokens"].sum())
    per_token = _with_ends("joules_per_token", joules / tokens) if tokens else None
    return Energy(joules, per_token, _with_ends("watts", joules / span_s), tuple(never))


def _with_ends(name: str, value: float) -> Interval:
    """Return a figure with the interval in which nine of ten points of another device lay."""
    from servetwin.sim.step_times.roofline.power import POWER

    return Interval(value, *(value * factor for factor in POWER["measured_over_predicted"][name]))
