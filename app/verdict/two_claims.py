"""Judge a prediction by two claims: the step times, and everything else given the step times.

The speed of shared cores wanders, and a queue amplifies it: a forecast of latencies alone could
neither be confirmed nor refuted. So the two are told apart. *Step times*: what the batches that
really ran took, against what the profile says of them, in units of the reference beat of the same
second. *The rest* (queue, scheduling, memory, API, client): the latencies and the throughput that
the simulator predicts for what was really sent, at the measured pace of the steps, against those
measured. The prediction holds if both do, and is refuted if either is.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, pairwise
from statistics import NormalDist
from typing import Any, Literal, Self

import numpy as np
import pandas as pd

from servetwin.app.verdict import claims, intervals
from servetwin.app.verdict.claims import Comparison, MetricComparison
from servetwin.app.verdict.lane_claims import NO_TASK, TASK_LIMIT, LaneClaims
from servetwin.app.verdict.measured_facts import MeasuredFacts, as_sent, measured_facts
from servetwin.app.verdict.observed_steps import (
    BLOCK_S,
    STEP_KINDS,
    busy_s,
    observed_frame,
    observed_pace,
    steps_frame,
)
from servetwin.app.verdict.whole_forecast import WholeForecast
from servetwin.policies.build import build_scheduler
from servetwin.policies.step_record import StepRecord, timed_steps
from servetwin.sim.experiments.measured_parts import MeasuredParts, Pace, simulate_measured
from servetwin.sim.experiments.predict import Interval, run_once
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.records.metrics import common, figure
from servetwin.sim.records.run import Run, machine_facts
from servetwin.sim.step_times.fit import robust_nnls
from servetwin.sim.step_times.machine_speed import MachineSpeed, slowdown
from servetwin.sim.step_times.profile import Profile, StepTimeFit
from servetwin.workloads.trace import Trace

# The metric of all steps; the others end in their kind.
STEPS = "step_s.all"
STEP_LIMIT = 0.05
# A kind of step with a smaller share of the time is shown and not judged.
LEAST_SHARE = 0.05
FEWEST_BLOCKS = 5
# Between two measurements of the same steps in beats: over 22 trials their ratio was 0.7 % off.
# With 0.9 % the intervals of 177 of 200 simulated trials over recorded beats cover the truth, with
# 0.7 % those of 165.
AGAIN = intervals.RelativeVariance(0.009**2, 20)
# Stamps that tell the steps of a smaller share of the time tell too little.
LEAST_TOLD = 0.1
_HALF_WIDTH = NormalDist().inv_cdf((1 + intervals.CONFIDENCE) / 2)
Clock = Literal["beats", "log", "stamps"]
# A step so long, and so many times what is stated, is a clock that jumped or a server that was
# started again.
PAUSE_S, PAUSED = 1.0, 10.0
# Where other programs take more of the time, caches are cold in ways that no beat shows.
MOST_LOST = 0.5


@dataclass(frozen=True, slots=True)
class StepsInBeats:
    """The steps of load tests: ``frame`` has ``block``, ``kind``, ``took_s``, ``stated_s`` and
    ``switches``.

    ``stated_s`` is what the profile says, at the speed of the machine in that moment. ``set_aside``
    is the number of blocks without beats enough to tell it, or with an odd step, ``slowness`` the
    mean beat of the rest over that of the profile, ``lost`` the share of the time that other
    programs took, with what the cold caches of a core that comes back cost (``refill_s`` each time,
    in seconds). Without a beat on both sides all is in wall time (``clock``: by the log or by
    stamps), and ``spread`` is how far the speed of the machine may be from that of the calibration
    (90 %). ``told`` is the share of the time of the tests that the steps explain.
    """

    frame: pd.DataFrame
    set_aside: int
    slowness: float
    lost: float
    refill_s: float
    clock: Clock = "beats"
    spread: float = 0.0
    told: float = 1.0

    @classmethod
    def of(cls, tests: Sequence[Sequence[StepRecord]], fit: StepTimeFit, beat_s: float) -> Self:
        """Read the steps of each load test; ``beat_s`` is the beat of the profile."""
        away_s = sum(step.lost_s for records in tests for step in records)
        return cls._of_frames([_timed_frame(steps, fit) for steps in tests], beat_s, away_s)

    @classmethod
    def of_runs(cls, runs: Sequence[Run], profile: Profile, fit: StepTimeFit) -> Self:
        """Read the steps of load tests: in beats, else in wall time by the log, or by stamps."""
        tests = [in_order(run.records) for run in runs]
        cut = [run.records[len(steps) :] for run, steps in zip(runs, tests, strict=True)]
        aside = sum(len({step.now_s // BLOCK_S for step in steps}) for steps in cut)
        if profile.beat_s and any(step.beat_s for steps in tests for step in steps):
            timed = cls.of(tests, fit, profile.beat_s)
            return replace(timed, set_aside=timed.set_aside + aside)
        spread = _HALF_WIDTH * fit.drift
        if all(tests):
            frames = [_timed_frame(steps, fit).assign(beat_s=1.0) for steps in tests]
            timed = cls._of_frames(frames, 1.0, 0.0)
            aside += timed.set_aside
            return replace(timed, clock="log", spread=spread, set_aside=aside)
        frames = [observed_frame(run, profile.policy_config(), fit) for run in runs]
        steps = cls._of_frames(frames, 1.0, 0.0)
        decoding_s = sum(map(busy_s, runs))  # 0 where every answer is one token
        told = float(steps.frame["took_s"].sum()) / decoding_s if decoding_s else 0.0
        return replace(steps, clock="stamps", spread=spread, told=told)

    @classmethod
    def _of_frames(cls, frames: Sequence[pd.DataFrame], beat_s: float, away_s: float) -> Self:
        steps = pd.concat(frames, keys=range(len(frames)), names=["test", None]).reset_index()
        steps["block"] = steps.groupby(["test", "block"]).ngroup()
        paused = steps["took_s"] > np.maximum(PAUSE_S, PAUSED * steps["stated_s"])
        odd = steps["beat_s"].isna() | paused
        unknown = odd.groupby(steps["block"]).transform("any")
        known = steps[~unknown].copy()
        beats, chunks = known["beat_s"].to_numpy() / beat_s, (known["kind"] != "decode").to_numpy()
        known["stated_s"] *= slowdown(beats, chunks)
        aside = int(steps.loc[unknown, "block"].nunique())
        slowness = np.average(known["beat_s"], weights=known["took_s"]) if len(known) else beat_s
        spent_s = away_s + float(steps["took_s"].sum())
        refill = refill_s(known)
        lost_s = away_s + refill * float(known["switches"].sum())
        lost = lost_s / spent_s if spent_s else 0.0
        return cls(known, aside, float(slowness) / beat_s, lost, refill)

    def paces(self, fit: StepTimeFit, count: int) -> list[Pace]:
        """Return the pace of each load test, by the steps that its stamps tell."""
        noise, tests = float(np.mean(fit.noise)), self.frame["test"]
        return [observed_pace(self.frame[tests == test], noise) for test in range(count)]

    def doubts(self) -> list[str]:
        """Return why these steps can judge no profile."""
        if self.frame.empty and self.clock == "beats":
            return ["no block of the load tests has enough reference beats; send longer ones"]
        if self.told < LEAST_TOLD:
            return [
                f"the stamps of tokens tell the steps of {100 * self.told:.0f} % of the time: in "
                "the rest nobody outside knows which prompts a step computed; offer less load, or "
                "ask for longer answers"
            ]
        if self.lost > MOST_LOST:
            return [
                f"other programs took {100 * self.lost:.0f} % of the engine's time and its "
                "caches; end them, and verify again"
            ]
        return []


def _timed_frame(steps: Sequence[StepRecord], fit: StepTimeFit) -> pd.DataFrame:
    """Return the steps of a log (``steps_frame``), lost cores, and the mean beat around each."""
    timed = [*timed_steps(steps)]
    frame = steps_frame([(step.now_s, (step.shape(),), took_s) for step, took_s, _ in timed], fit)
    beats_s = MachineSpeed.of(steps).beats_around(frame["began_s"].to_numpy())
    return frame.assign(switches=[switches for *_, switches in timed], beat_s=beats_s)


def in_order(steps: Sequence[StepRecord]) -> Sequence[StepRecord]:
    """Return the steps until the clock of the log went back, if it ever did."""
    for place, (this, after) in enumerate(pairwise(steps), start=1):
        if after.now_s < this.now_s:
            return steps[:place]
    return steps


def refill_s(steps: pd.DataFrame) -> float:
    """Return what a step takes longer for each time that it lost its core, in seconds.

    It has to fill the caches again. Known from steps of the same kind that lost it more or less
    often, so that no error of the stated times is in it.
    """
    if not steps["switches"].any():
        return 0.0
    kinds = [np.where(steps["kind"] == kind, steps["stated_s"], 0.0) for kind in STEP_KINDS]
    columns = np.column_stack([*kinds, steps["switches"]])
    return float(robust_nnls(columns, steps["took_s"].to_numpy())[-1])


def compare_steps(steps: StepsInBeats, limit: float = STEP_LIMIT) -> list[MetricComparison]:
    """Compare the times of all steps, then of each kind of step that took time.

    They are means per step, in seconds.
    """
    frame = steps.frame
    if frame.empty:
        return []
    without = [frame[frame["block"] != block] for block in frame["block"].unique()]
    refills_s = [refill_s(rest) for rest in without]
    kinds = [kind for kind in ("all", *STEP_KINDS) if _of_kind(frame, kind)["took_s"].any()]
    return [_compare_kind(kind, steps, refills_s, limit) for kind in kinds]


def _of_kind(steps: pd.DataFrame, kind: str) -> pd.DataFrame:
    return steps if kind == "all" else steps[steps["kind"] == kind]


def _compare_kind(
    kind: str, steps: StepsInBeats, refills_s: Sequence[float], limit: float
) -> MetricComparison:
    """Compare sums; the interval leaves out one block of time after the other (the jackknife).

    ``refills_s`` has ``refill_s`` without each block. A kind with few blocks or little of the time
    is not judged.
    """
    frame, part = steps.frame, _of_kind(steps.frame, kind)
    columns = ["took_s", "stated_s", "switches"]
    sums = part.groupby("block")[columns].sum().reindex(frame["block"].unique(), fill_value=0.0)
    took_s, stated_s, switches = sums.to_numpy(dtype=np.float64).T
    net_s = took_s.sum() - steps.refill_s * switches.sum()
    ratio, blocks = float(stated_s.sum() / net_s), int((took_s > 0).sum())
    low = high = None
    if blocks > 1:
        rest_s = took_s.sum() - took_s - np.array(refills_s) * (switches.sum() - switches)
        logs = np.log((stated_s.sum() - stated_s) / rest_s)[took_s > 0]
        variance = float(((logs - logs.mean()) ** 2).sum()) * (blocks - 1) / blocks
        freedom = 1 / float(((took_s / took_s.sum()) ** 2).sum()) - 1
        within = intervals.RelativeVariance(variance, max(freedom, 1.0))
        low, high = intervals.ratio_interval(ratio, [within, AGAIN])
    counts = blocks >= FEWEST_BLOCKS and took_s.sum() >= LEAST_SHARE * frame["took_s"].sum()
    judged = limit if counts or kind == "all" else None
    predicted_s = float(stated_s.sum() / len(part))
    width = 1 + steps.spread
    predicted = Interval(predicted_s, predicted_s / width, predicted_s * width)
    outcome = None if judged is None else claims.outcome_of(predicted, low, high, judged)
    measured_s = predicted_s / ratio
    return MetricComparison(
        f"step_s.{kind}", predicted, measured_s, ratio - 1, low, high, None, judged, outcome
    )


def replayed(
    facts: MeasuredFacts, scenario: Scenario, seed: int, pace: Pace | None
) -> tuple[Run, Run]:
    """Simulate what a load test sent, with the measured lengths and the pace of its steps.

    Return that, and the load test with latencies from its send times.
    """
    parts = MeasuredParts(steps=facts.steps, pace=pace)
    return simulate_measured(facts.trace(), scenario, parts, seed), as_sent(facts.run)


def compare_rest(
    tests: Sequence[tuple[Run, Run]], limits: Mapping[str, float], unsure: Mapping[str, float]
) -> list[MetricComparison]:
    """Compare latencies and throughput, given the step times; each test with its own simulation.

    ``unsure`` has the relative half width of a latency by what is not known of the pace (90 %).
    """
    rows = []
    summaries = [(ours.summary(), theirs.summary()) for ours, theirs in tests]
    for metric in common(claims.METRICS, [*chain.from_iterable(summaries)]):
        pairs = [(figure(ours, metric), figure(theirs, metric)) for ours, theirs in summaries]
        variances = [intervals.variance_within(metric, a.requests, b.requests) for a, b in tests]
        width = unsure.get(metric.partition(".")[0], 0.0)
        rows.append(claims.compare_pairs(metric, pairs, variances, limits.get(metric), width))
    return rows


@dataclass(frozen=True, slots=True)
class TwoClaims:
    """Both claims over some load tests, and what is printed beside them.

    ``whole`` has the whole forecast by the name of a latency; ``elsewhere`` names the other machine
    that the profile is of, if it is. ``lanes`` is there where these sent the requests.
    """

    comparison: Comparison
    steps: StepsInBeats
    whole: Mapping[str, WholeForecast]
    elsewhere: str | None = None
    lanes: LaneClaims | None = None

    @classmethod
    def of(
        cls,
        measured: Sequence[Run],
        trace: Trace,
        profile: Profile,
        limits: Mapping[str, float],
        seed: int,
    ) -> Self:
        """Judge load tests of ``trace``, by the engine's steps (``Run.records``) or by stamps.

        Only the step times are judged where the profile is of another machine, whose API and client
        say nothing about those of this one.
        """
        runs = claims.judgeable(measured)
        scenario = Scenario(profile.policy_config(), profile)
        facts = [
            replace(measured_facts(run, trace), steps=in_order(run.records) or None) for run in runs
        ]
        fit = profile.step_time(build_scheduler(scenario.policies).memory.layout)
        steps = StepsInBeats.of_runs(runs, profile, fit)
        paces = [None] * len(runs) if steps.clock != "stamps" else steps.paces(fit, len(runs))
        tests = [
            replayed(one, scenario, seed, pace) for one, pace in zip(facts, paces, strict=True)
        ]
        processor = profile.machine.get("processor")
        elsewhere = None if processor in (None, machine_facts()["processor"]) else str(processor)
        rows = compare_steps(steps, limits.get(STEPS, STEP_LIMIT))
        slowness = steps.slowness / (1 - steps.lost)
        error = rows[0].error or 0.0 if rows else 0.0
        whole = WholeForecast.of(facts, scenario, slowness, rows[0], seed) if rows else {}
        unsure = {name: one.unsure for name, one in whole.items() if steps.clock == "stamps"}
        rows += compare_rest(tests, {} if elsewhere else limits, unsure)
        doubts = [*claims.doubts_about(runs), *steps.doubts()]
        lanes = None
        if trace.lanes:
            as_measured = Scenario(scenario.policies, profile.scaled(slowness / (1 + error)))
            predicted = run_once(trace, as_measured, seed=seed)
            lanes = LaneClaims.of(facts, predicted, None if elsewhere else TASK_LIMIT)
            rows.append(lanes.task)
            doubts += [] if lanes.tasks else [NO_TASK]
        if elsewhere and steps.clock != "beats":
            doubts.append(
                f"the profile is of another machine ({elsewhere}), and only reference beats on "
                "both tell its speed from an error of the steps; calibrate this one"
            )
        aside = len(measured) - len(runs)
        comparison = Comparison(
            tuple(rows), len(runs), tuple(doubts), aside, claims.count_limited(runs)
        )
        return cls(comparison, steps, whole, elsewhere, lanes)

    @property
    def refutable(self) -> float | None:
        """The smallest change of all step times that these load tests would have refuted."""
        row = self.comparison.metrics[0]
        if self.comparison.doubts or row.predicted is None or row.limit is None:
            return None
        if row.error_low is None or row.error_high is None:
            return None
        half = math.sqrt((1 + row.error_high) / (1 + row.error_low))
        _, high = claims.with_forecast(row.predicted, 1 / half - 1, half - 1)
        return (1 + row.limit) * (1 + high) - 1

    def as_dict(self) -> dict[str, Any]:
        """Return what stands beside the comparison, for JSON."""
        return {
            "slowness": self.steps.slowness,
            "lost": self.steps.lost,
            "blocks_set_aside": self.steps.set_aside,
            "clock": self.steps.clock,
            "told": self.steps.told,
            "whole_forecast": {name: asdict(one) for name, one in self.whole.items()},
            **({"lanes": asdict(self.lanes)} if self.lanes else {}),
        }
