"""One simulated server: a scheduler, a step-time model, and SimPy's clock (in ticks)."""

from collections.abc import Callable

from simpy.events import Event

from policies.batch import Batch, BatchShape
from policies.protocols import Refusal, Scheduler
from policies.sequence import Sequence
from policies.step_record import record_step
from sim.environment import Alarm, Environment
from sim.recorder import Recorder
from sim.run_clock import run_clock
from sim.step_time import StepNoise, StepTime
from sim.ticks import SECONDS_PER_TICK

Listener = Callable[[Sequence, Refusal | None], None]
"""Told of a sequence that finished, or was given up (and why)."""


class Stalled(AssertionError):
    """A scheduler has sequences but neither runs them nor says when it will."""


class Replica:
    """Runs batch after batch; with ``macro``, repetitions of one batch are a single event.

    An arrival that could change the plan ends a run of steps at its next boundary. A run that ends
    before anything else in the simulation happens needs no event at all; where nobody else is
    simulated (``alone``), a run stops to look at the next event that could be such an arrival.
    """

    def __init__(
        self,
        env: Environment,
        scheduler: Scheduler,
        step_time: StepTime,
        recorder: Recorder,
        noise: StepNoise | None = None,
        macro: bool = True,
        index: int = 0,
        alone: bool = False,
    ) -> None:
        self.scheduler = scheduler
        self.index = index
        self._alone = alone
        self._looks_ahead = False
        self.listeners: list[Listener] = []
        self._env = env
        self._clock = run_clock(step_time, noise)
        self._recorder = recorder
        self._macro = macro
        self._steps = 0
        self._batch: Batch | None = None
        self._shape = BatchShape(0, 0, 0)
        self._planned = self._started = self._delay = self._free_tokens = 0
        self._started_s = 0.0
        self._counts = (0, 0)
        self._idle_before = True
        self._wake: Event | None = None

    def submit(self, seq: Sequence) -> Refusal | None:
        """A request arrives; it wakes the server, or ends a run of steps at its next boundary."""
        refusal = self.scheduler.add(seq)
        if refusal is None:
            if self._batch is None:
                self._wake_after(0)
            elif self._planned > 1 and not self._looks_ahead and self.scheduler.cut_by(seq):
                self._cut()
        return refusal

    def _wake_after(self, delay: int) -> None:
        """Decide after ``delay``; an earlier call that has not come true is forgotten."""
        self._wake = Alarm(self._env, delay, self._on_wake)

    def _on_wake(self, event: Event) -> None:
        if event is not self._wake:
            return
        now = self._env.now
        batch = self._batch
        while True:
            if batch is not None:
                self._complete(batch, now)
            self._batch = batch = self._decide(now)
            if batch is None:
                return
            end = now + self._delay
            if not self._alone or end >= self._env.next_tick():
                self._wait(now, end)
                return
            now = end

    def _wait(self, now: int, end: int) -> None:
        self._looks_ahead = self._alone and self.scheduler.may_cut()
        if self._looks_ahead and self._planned > 1:
            steps = self._clock.steps_by(self._env.next_tick() - now)
            if steps < self._planned:
                self._planned = steps
                end = now + self._clock.elapsed(steps)
        self._wake_after(end - self._env.now)

    def _decide(self, now: int) -> Batch | None:
        """Plan the next run of steps; None, and asleep, when there is nothing to run."""
        now_s = now * SECONDS_PER_TICK
        scheduler, recorder = self.scheduler, self._recorder
        batch = scheduler.schedule(now_s)
        if dropped := scheduler.dropped():
            self._tell_dropped(dropped)
        if batch is None:
            self._sleep(now)
            return None
        steps = scheduler.quiet_steps(batch) if self._macro else 1
        self._shape = shape = batch.shape()
        self._planned = steps
        self._started, self._started_s = now, now_s
        self._counts = scheduler.counts()
        self._free_tokens = scheduler.memory.free_tokens()
        self._delay = self._clock.begin(shape, steps, self._steps)
        if batch.chunks or batch.preempted or batch.resumed:
            recorder.decided(batch, now_s)
        if recorder.keeps_more:
            self._note(batch)
        self._idle_before = False
        return batch

    def _complete(self, batch: Batch, now: int) -> None:
        steps = self._planned
        self._steps += steps
        finished = self.scheduler.complete(batch, steps)
        now_s = now * SECONDS_PER_TICK
        recorder = self._recorder
        recorder.ran(
            self._started_s, now_s, steps, self._shape, self._counts, self._free_tokens, self.index
        )
        if finished or batch.chunks:
            recorder.tokens(batch, finished, now_s)
            for listener in self.listeners:
                for seq in finished:
                    listener(seq, None)

    def _cut(self) -> None:
        """End the run at the first step boundary from now on."""
        now = self._env.now
        steps = self._clock.steps_by(now - self._started)
        if steps < self._planned:
            self._planned = steps
            self._wake_after(self._started + self._clock.elapsed(steps) - now)

    def _sleep(self, now: int) -> None:
        self._idle_before = True
        wake_s = self.scheduler.wake_s()
        if wake_s is not None:
            wake = max(now, -int(-wake_s // SECONDS_PER_TICK))
            self._wake_after(wake - self._env.now)
            return
        running, waiting = self.scheduler.counts()
        if running or waiting:
            raise Stalled(f"{running} running and {waiting} waiting sequences, but no batch")

    def _tell_dropped(self, dropped: list[tuple[Sequence, Refusal]]) -> None:
        for seq, refusal in dropped:
            self._recorder.refused(seq, refusal)
            for listener in self.listeners:
                listener(seq, refusal)

    def _note(self, batch: Batch) -> None:
        recorder, scheduler = self._recorder, self.scheduler
        if recorder.keep_usage:
            recorder.used(scheduler.memory.usage(scheduler.holders()))
        if recorder.keep_records:
            duration_s = self._delay * SECONDS_PER_TICK
            record = record_step(
                self._steps, batch, scheduler, self._started_s, duration_s, self._idle_before
            )
            recorder.records.append(record)
