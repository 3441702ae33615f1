"""Simulate a server with measured parts in place of predicted ones.

The duration of the steps that a server measured replaces what the step times would give. The rest
is simulated as ever, so the change of a figure is the effect of that part.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from servetwin.policies.batch import Batch, BatchShape
from servetwin.policies.build import build_scheduler
from servetwin.policies.protocols import Scheduler
from servetwin.policies.scheduler_proxy import SchedulerProxy
from servetwin.policies.step_record import StepRecord, gaps_s
from servetwin.sim.core.recorder import Recorder
from servetwin.sim.core.simulate import simulate
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.acceptance import Verifier, require_acceptance
from servetwin.sim.step_times.step_time import FloatArray, StepNoise, StepTime
from servetwin.sim.step_times.tables.table import ScaledStepTime
from servetwin.workloads.trace import Trace


@dataclass(frozen=True, slots=True)
class MeasuredParts:
    """The measured parts; None leaves a part to the simulation.

    ``steps`` are on the clock of the trace; ``pace`` stands for them where no log has them. Where
    no log says what steps took, ``scale`` has factors on those without prompts and on those with
    them. ``request_s`` replaces the time of the API before the scheduler.
    """

    steps: Sequence[StepRecord] | None = None
    pace: "Pace | None" = None
    scale: tuple[float, float] = (1.0, 1.0)
    request_s: float | None = None


def simulate_measured(trace: Trace, scenario: Scenario, measured: MeasuredParts, seed: int) -> Run:
    """Simulate one server of ``scenario`` with the measured parts, on the noise of ``run_once``."""
    config, profile = scenario.policies, scenario.profile
    require_acceptance(config, profile.acceptance)
    scheduler = build_scheduler(config)
    streams = np.random.SeedSequence(seed).spawn(1)[0].spawn(4)
    source = profile.step_time(scheduler.memory.layout)
    step_time, noise = source.model(), None
    if measured.scale != (1.0, 1.0):
        step_time = ScaledStepTime(step_time, measured.scale)
    pace = measured.pace
    if measured.steps is not None:
        pace = Pace.of_log(measured.steps, step_time)
    if pace is not None:
        scheduler = step_time = MeasuredPace(scheduler, step_time, pace)
    else:
        noise = StepNoise(source.noise_factors(), np.random.default_rng(streams[1]))
    api = profile.api.model()
    if measured.request_s is not None:
        api = replace(api, request_s=measured.request_s)
    acceptance = profile.acceptance
    return simulate(
        trace, scheduler, step_time, noise=noise, recorder=Recorder(api), macro=pace is None,
        verifier=None if acceptance is None else Verifier(acceptance, streams[2]),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pace:
    """Measured / modelled durations of steps (``paces``) and when they began (``moments_s``).

    Both are by whether the steps had prompts. ``asleep_s`` has when the server fell asleep and when
    it awoke.
    """

    moments_s: Mapping[bool, Sequence[float]]
    paces: Mapping[bool, Sequence[float]]
    asleep_s: Sequence[tuple[float, float]] = ()

    @classmethod
    def of_log(cls, steps: Sequence[StepRecord], model: StepTime) -> "Pace":
        """Return the pace of every step of a log."""
        moments_s: dict[bool, list[float]] = {}
        paces: dict[bool, list[float]] = {}
        asleep_s, ended_s = [], -inf
        for this, took_s in zip(steps, gaps_s(steps), strict=True):
            if this.idle_before:
                asleep_s.append((ended_s, this.now_s))
            ended_s = this.now_s + took_s
            shape = this.shape()
            modelled_s = float(model.seconds(shape)[0])
            if modelled_s > 0:
                moments_s.setdefault(bool(shape.prefill_chunks), []).append(this.now_s)
                paces.setdefault(bool(shape.prefill_chunks), []).append(took_s / modelled_s)
        return cls(moments_s, paces, asleep_s)

    def at(self, now_s: float, has_prompts: bool) -> float:
        """Return the pace of the step nearest in time; of the other kind where this has none."""
        kind = has_prompts if self.moments_s.get(has_prompts) else not has_prompts
        moments_s = self.moments_s.get(kind, ())
        if not moments_s:
            return 1.0
        place = bisect_left(moments_s, now_s)
        near = (at for at in (place - 1, place) if 0 <= at < len(moments_s))
        return self.paces[kind][min(near, key=lambda at: abs(moments_s[at] - now_s))]


class MeasuredPace(SchedulerProxy):
    """A scheduler and its step times: the model, at the pace of the measured steps of that moment.

    A step lasts as the model says, times measured / modelled of the measured step that began
    nearest to it, among those with prompts or those without. Where simulation and server form the
    same batches, that is the measured duration itself. An idle server sleeps on until the measured
    one awoke, so a request that came while it did is in the same batch.
    """

    def __init__(self, scheduler: Scheduler, model: StepTime, pace: Pace) -> None:
        super().__init__(scheduler)
        self.wants_contexts = getattr(model, "wants_contexts", False)
        self.wants_longest = getattr(model, "wants_longest", False)
        self._model, self._pace, self._now_s = model, pace, 0.0

    def schedule(self, now_s: float) -> Batch | None:
        """Schedule as the scheduler does, unless the measured server was asleep."""
        self._now_s = now_s
        if self._awakes_s() is not None:
            return None
        return self._inner.schedule(now_s)

    def wake_s(self) -> float | None:
        """Return the timer of the scheduler, but not before the measured server awoke."""
        awakes_s = self._awakes_s()
        return self._inner.wake_s() if awakes_s is None else awakes_s

    def _awakes_s(self) -> float | None:
        """Return when the measured server awakes; None if one of them is awake."""
        asleep_s = self._pace.asleep_s
        place = bisect_right(asleep_s, (self._now_s, inf)) - 1
        if place < 0 or self.load()[0]:
            return None
        awakes_s = asleep_s[place][1]
        return awakes_s if self._now_s < awakes_s else None

    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        """Return the seconds of the step that was just scheduled."""
        pace = self._pace.at(self._now_s, bool(shape.prefill_chunks))
        return self._model.seconds(shape, steps) * pace
