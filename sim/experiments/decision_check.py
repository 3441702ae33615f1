"""Check that the simulator decides as the engine: replay the engine's own times and compare.

A step log holds when each request reached the scheduler and when each step was decided. Given
these times, the simulator must form the identical sequence of batches, preemptions and cache hits.
The error of a prediction is then the error of the step-time model alone.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, zip_longest

import numpy as np

from servetwin.policies.batch import Batch, BatchShape
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.drafted_decodes import DraftedDecodes
from servetwin.policies.protocols import Scheduler
from servetwin.policies.scheduler_proxy import SchedulerProxy
from servetwin.policies.sequence import Keys, Sequence
from servetwin.policies.step_record import StepRecord, gaps_s
from servetwin.sim.core.simulate import simulate
from servetwin.sim.step_times.step_time import FloatArray
from servetwin.workloads.request import Request


class RecordedPace(SchedulerProxy):
    """A scheduler and its step times, both at the times of a log.

    Step ``k`` lasts until step ``k + 1`` was decided. Timers fire when the engine's fired: a real
    timer is always a bit late.
    """

    def __init__(self, scheduler: Scheduler, log: list[StepRecord]) -> None:
        super().__init__(scheduler)
        self._log = log
        self._gaps_s = list(gaps_s(log))
        self._next = 0

    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        """Return the duration of the next step of the log."""
        this, self._next = self._next, self._next + 1
        return np.array([self._gaps_s[min(this, len(self._gaps_s) - 1)]])

    def wake_s(self) -> float | None:
        """Return when the next step of the log was decided, if the scheduler has set a timer."""
        is_over = self._next == len(self._log)
        return None if is_over or self._inner.wake_s() is None else self._log[self._next].now_s


class RecordedDrafts:
    """Says of each sequence what came out of its passes that verified drafts in a log."""

    def __init__(self, log: list[StepRecord]) -> None:
        self._gained = defaultdict[str, list[tuple[int, int]]](list)
        for step, record in enumerate(record for record in log if record.drafts):
            for name, _, accepted in record.drafts:
                self._gained[name].append((step, 1 + accepted))

    def verify(self, batch: Batch) -> None:
        """Say it of the sequences that have joined; beyond the log one token comes out of a pass.

        A decision that differs from the log's may lead there.
        """
        group = batch.lockstep
        if isinstance(group, DraftedDecodes):
            for seq in tuple(group.unjudged):
                gained = self._gained[seq.output_id]
                passes = [n for step, n in gained if step >= group.steps] + [1] * seq.max_tokens
                group.set_schedule(seq, np.array(list(accumulate(passes, initial=0))))


@dataclass(frozen=True, slots=True)
class DecisionCheck:
    """The number of steps that agree before the first difference, and both records of that step."""

    steps: int
    agreeing: int
    engine: StepRecord | None = None
    simulator: StepRecord | None = None

    @property
    def identical(self) -> bool:
        """Whether all steps agree."""
        return self.agreeing == self.steps


class _RecordedKeys:
    """The block keys that the engine computed from token ids."""

    def __init__(self, arrivals: Iterable[Sequence]) -> None:
        self._keys = {seq.request_id: seq.block_keys for seq in arrivals}

    def of(self, request: Request) -> tuple[Keys, int]:
        return self._keys[request.request_id], 1


def check_decisions(
    arrivals: list[Sequence], config: PolicyConfig, log: list[StepRecord]
) -> DecisionCheck:
    """Replay the arrivals at the engine's scheduler at their recorded times and compare each step.

    ``arrivals`` and ``log`` come from a step log that starts and ends with an idle engine; every
    request must have generated as many tokens as declared.
    """
    paced = RecordedPace(build_scheduler(config), log)
    requests = [
        Request(s.request_id, s.arrival_s, s.prompt_tokens, s.max_tokens, samples=s.samples)
        for s in arrivals
    ]
    run = simulate(
        requests,
        paced,
        paced,
        keep_records=True,
        keys=_RecordedKeys(arrivals),
        verifier=RecordedDrafts(log),
    )
    steps = max(len(log), len(run.records))
    for index, (engine, simulator) in enumerate(zip_longest(log, run.records)):
        if not (engine and simulator and engine.decisions() == simulator.decisions()):
            return DecisionCheck(steps, index, engine, simulator)
    return DecisionCheck(steps, steps)
