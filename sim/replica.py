"""One simulated server: a scheduler, a step-time model, and SimPy's clock."""

from collections.abc import Generator
from typing import Any

import numpy as np
import simpy
from simpy.events import URGENT, Event

from policies.batch import Batch
from policies.protocols import Refusal, Scheduler
from policies.sequence import Sequence
from policies.step_record import record_step
from sim.recorder import Recorder
from sim.step_time import FloatArray, StepNoise, StepTime

Process = Generator[Event, Any, None]


class Stalled(AssertionError):
    """A scheduler has sequences but neither runs them nor says when it will."""


class UrgentTimeout(Event):
    """A timeout that goes before all else at its moment.

    An arrival at the very end of a step is so seen by the next decision, as in the engine.
    """

    def __init__(self, env: simpy.Environment, delay: float) -> None:
        super().__init__(env)
        self._ok = True
        self._value = None
        env.schedule(self, URGENT, delay)


class Replica:
    """Runs batch after batch; with ``macro``, repetitions of one batch are a single event."""

    def __init__(
        self,
        env: simpy.Environment,
        scheduler: Scheduler,
        step_time: StepTime,
        recorder: Recorder,
        noise: StepNoise | None = None,
        macro: bool = True,
    ) -> None:
        self._env = env
        self._scheduler = scheduler
        self._step_time = step_time
        self._recorder = recorder
        self._noise = noise
        self._macro = macro
        self._steps = 0
        self._arrival = env.event()
        env.process(self._serve())

    def submit(self, seq: Sequence) -> Refusal | None:
        """A request arrives; it wakes the server, or ends a run of steps at its next boundary."""
        refusal = self._scheduler.add(seq)
        if refusal is None:
            arrival, self._arrival = self._arrival, self._env.event()
            arrival.succeed()
        return refusal

    def _serve(self) -> Process:
        idle = True
        while True:
            batch = self._scheduler.schedule(self._env.now)
            if batch is None:
                idle = True
                yield self._next_wake()
                continue
            durations = self._durations(batch)
            index = self._log(batch, durations, idle)
            idle = False
            steps = len(durations)
            if steps > 1 and self._scheduler.cut_by_arrival():
                steps = yield from self._elapse_until_arrival(durations)
            else:
                yield self._env.timeout(float(durations.sum()))
            self._steps += steps
            finished = self._scheduler.complete(batch, steps)
            self._recorder.ran(index, steps, self._env.now)
            self._recorder.tokens(batch, finished, self._env.now)

    def _durations(self, batch: Batch) -> FloatArray:
        steps = self._scheduler.quiet_steps(batch) if self._macro else 1
        durations = self._step_time.seconds(batch.shape(), steps)
        if self._noise:
            durations = durations * self._noise.factors(self._steps, steps)
        return durations

    def _log(self, batch: Batch, durations: FloatArray, idle: bool) -> int:
        now_s = self._env.now
        self._recorder.scheduled(batch, now_s)
        if self._recorder.keep_records:
            record = record_step(
                self._steps, batch, self._scheduler, now_s, float(durations[0]), idle
            )
            self._recorder.records.append(record)
        running, waiting = self._scheduler.counts()
        free_tokens = self._scheduler.memory.free_tokens()
        return self._recorder.step(now_s, batch.shape(), running, waiting, free_tokens)

    def _next_wake(self) -> Event:
        wake_s = self._scheduler.wake_s()
        if wake_s is None:
            running, waiting = self._scheduler.counts()
            if running or waiting:
                raise Stalled(f"{running} running and {waiting} waiting sequences, but no batch")
            return self._arrival
        return self._arrival | self._env.timeout(max(0.0, wake_s - self._env.now))

    def _elapse_until_arrival(self, durations: FloatArray) -> Generator[Event, Any, int]:
        start_s = self._env.now
        ends_s = np.cumsum(durations)
        arrival = self._arrival
        yield self._env.timeout(float(ends_s[-1])) | arrival
        if not arrival.processed:
            return len(durations)
        done = int(np.searchsorted(ends_s, self._env.now - start_s))
        if done >= len(durations):
            return len(durations)
        yield self._env.timeout(max(0.0, start_s + float(ends_s[done]) - self._env.now))
        return done + 1
