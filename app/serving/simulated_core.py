"""An engine core without a model: its steps take as long as a step-time model says.

Everything else is the engine's own: the loop, the policies, the step log, the HTTP process.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from servetwin.app.serving.real_time import Clock, StepTimer
from servetwin.engine.core.core import EngineCore
from servetwin.engine.core.messages import RequestFailed, TokenEvent
from servetwin.engine.core.step_log import StepLog
from servetwin.engine.sampling.new_token import NewToken
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.text.byte_tokenizer import FIRST_WORD_ID
from servetwin.policies.batch import Batch
from servetwin.policies.protocols import Refusal, Scheduler
from servetwin.sim.core.run_clock import run_clock
from servetwin.sim.step_times.step_time import StepNoise, StepTime
from servetwin.sim.ticks import SECONDS_PER_TICK


@dataclass(slots=True)
class SimulatedAnswer:
    """The tokens of one sequence, and the generator of the next ones."""

    token_ids: list[int]
    draws: np.random.Generator


class Answers:
    """Random words as answers, equal for equal prompts and seeds; none ends early."""

    def __init__(self, vocab_size: int, seed: int = 0) -> None:
        self._vocab_size = vocab_size
        self._seed = seed

    def begin(self, token_ids: list[int], params: SamplingParams) -> SimulatedAnswer:
        """Begin the answer to a prompt."""
        seeds = (self._seed, params.seed or 0, hash(tuple(token_ids)))
        entropy = np.random.SeedSequence([seed % (1 << 64) for seed in seeds])
        return SimulatedAnswer(token_ids, np.random.default_rng(entropy))

    def next_token(self, answer: SimulatedAnswer) -> int:
        """Draw the next token of an answer."""
        return int(answer.draws.integers(FIRST_WORD_ID, self._vocab_size))


class SimulatedExecutor:
    """Draws the tokens of a batch and lasts as long as the simulator's clock says."""

    def __init__(
        self, answers: Answers, step_time: StepTime, noise: StepNoise | None, timer: StepTimer
    ) -> None:
        self._answers = answers
        self._run_clock = run_clock(step_time, noise)
        self._timer = timer
        self._steps = 0

    def execute(self, batch: Batch, states: Mapping[str, Any]) -> dict[str, list[NewToken]]:
        """Return the new token of every entry that samples, when the step is due."""
        sampled = [
            name for entry in batch.entries if entry.samples for name in entry.seq.output_ids()
        ]
        tokens = {name: [NewToken(self._answers.next_token(states[name]))] for name in sampled}
        self._timer.wait(self._seconds(batch))
        self._steps += 1
        return tokens

    def copy_blocks(self, copies: list[tuple[int, int]]) -> None:
        """There are no blocks, and the step-time model has no time for it."""

    def _seconds(self, batch: Batch) -> float:
        totals = batch.totals() if batch.chunks else None
        return self._run_clock.begin(batch, totals, 1, self._steps) * SECONDS_PER_TICK


class SimulatedCore(EngineCore):
    """The engine's core over a ``SimulatedExecutor``.

    ``step_time`` and ``noise`` are those of ``sim.core.simulate``, the rest as in ``EngineCore``.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        answers: Answers,
        step_time: StepTime,
        noise: StepNoise | None = None,
        *,
        clock: Clock,
        prefix_cache: bool = False,
        log: StepLog | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._timer = StepTimer(clock, sleep)
        super().__init__(
            scheduler,
            SimulatedExecutor(answers, step_time, noise, self._timer),
            answers.begin,
            prefix_cache=prefix_cache,
            clock=clock,
            log=log,
        )

    def add(
        self, request_id: str, token_ids: list[int], params: SamplingParams, received_s: float
    ) -> Refusal | None:
        """Hand a request to the scheduler, unless it wants what only a model knows."""
        if params.logprobs is not None:
            return Refusal("unsupported", "logprobs: a simulated model has none")
        return super().add(request_id, token_ids, params, received_s)

    def step(self, now_s: float) -> list[TokenEvent | RequestFailed] | None:
        """Run what the scheduler decides at ``now_s``; None when there is nothing to run yet."""
        self._timer.begin(now_s)
        events = super().step(now_s)
        if events is None:
            self._timer.rest()
        return events
