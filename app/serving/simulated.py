"""Serve the simulator in real time: from a server model to a core behind the engine's HTTP API."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from servetwin.engine.core.core import CoreClock, EngineCore
from servetwin.engine.core.messages import RequestFailed, TokenEvent
from servetwin.engine.core.step_log import StepLogFile, core_facts
from servetwin.engine.models.model_config import PRESETS
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.sampling.token_state import NewToken
from servetwin.engine.text.byte_tokenizer import FIRST_WORD_ID
from servetwin.policies.batch import Batch
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import Refusal, Scheduler
from servetwin.sim.core.run_clock import run_clock
from servetwin.sim.step_times.profile import Profile
from servetwin.sim.step_times.step_time import SECONDS_PER_TICK, NoiseSample, StepNoise, StepTime
from servetwin.workloads.errors import EngineError

if TYPE_CHECKING:
    from servetwin.app.scenario.options.deployment import Deployment
    from servetwin.app.scenario.options.policy import PolicyOptions

# How late a sleep may end, in seconds: the last part of a wait is spent without sleeping.
SPIN_S = 0.0003
# The longest time between two steps that counts as work of the core, in seconds.
MOST_HANDLING_S = 0.001
# The most lateness, in seconds, that the next steps make up for. Many short decodes would make up
# for a stall, and a calibration would find them too short.
MOST_MADE_UP_S = 0.01
# How late a step may be, in seconds, before a warning: the machine stood still.
MOST_LATE_S = 0.1

Clock = Callable[[], float]


class StepTimer:
    """When steps end, on an absolute clock: a little lateness of one step shortens the next.

    A step begins when the one before it was due, or, after a rest, when it is decided. It lasts
    until the next can be decided, as in a calibration; so the wait for its end leaves out what the
    core needed to get from the last end to the next decision.
    """

    def __init__(self, clock: Clock, sleep: Callable[[float], None] = time.sleep) -> None:
        self.clock = clock
        self._sleep = sleep
        self._due_s: float | None = None
        self._ended_s = 0.0
        self._handling_s = 0.0
        self._has_warned = False

    def begin(self, decided_s: float) -> None:
        """Note that a step is decided at ``decided_s``."""
        if self._due_s is None:
            self._due_s = decided_s
            return
        self._handling_s = min(decided_s - self._ended_s, MOST_HANDLING_S)
        late_s = decided_s - self._due_s
        if late_s > MOST_LATE_S:
            self._warn(late_s)
        if late_s > MOST_MADE_UP_S:
            self._due_s = decided_s

    def rest(self) -> None:
        """Note that there was nothing to decide."""
        self._due_s = None

    def wait(self, duration_s: float) -> None:
        """Return when the step that has begun is over."""
        assert self._due_s is not None
        self._due_s += duration_s
        end_s = self._due_s - self._handling_s
        while (left_s := end_s - self.clock()) > 0:
            if left_s > SPIN_S:
                self._sleep(left_s - SPIN_S)
        self._ended_s = self.clock()

    def _warn(self, late_s: float) -> None:
        if not self._has_warned:
            logging.getLogger(__name__).warning(
                "this machine is too slow or too busy to simulate that server in real time: "
                "a step came %.2f s late (reported once)",
                late_s,
            )
        self._has_warned = True


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
    """Draws the tokens of a batch and lasts as long as the simulator's clock says.

    ``step_time`` and ``noise`` are those of ``sim.core.simulate``.
    """

    def __init__(
        self, answers: Answers, step_time: StepTime, noise: StepNoise | None, timer: StepTimer
    ) -> None:
        self.answers = answers
        self.timer = timer
        self._run_clock = run_clock(step_time, noise)
        self._steps = 0

    def execute(self, batch: Batch, states: Mapping[str, Any]) -> dict[str, list[NewToken]]:
        """Return the new token of every entry that samples, when the step is due."""
        sampled = [
            name for entry in batch.entries if entry.yields_token for name in entry.seq.output_ids()
        ]
        tokens = {name: [NewToken(self.answers.next_token(states[name]))] for name in sampled}
        self.timer.wait(self._seconds(batch))
        self._steps += 1
        return tokens

    def copy_blocks(self, copies: list[tuple[int, int]]) -> None:
        """There are no blocks, and the step-time model has no time for it."""

    def _seconds(self, batch: Batch) -> float:
        totals = batch.totals() if batch.chunks else None
        return self._run_clock.begin(batch, totals, 1, self._steps) * SECONDS_PER_TICK


class SimulatedCore(EngineCore):
    """The engine's core over a ``SimulatedExecutor``; the rest as in ``EngineCore``."""

    executor: SimulatedExecutor

    @classmethod
    def over(
        cls, scheduler: Scheduler, executor: SimulatedExecutor, **options: Any
    ) -> "SimulatedCore":
        """Return a core on the clock and with the answers of its executor."""
        begin, clock = executor.answers.begin, executor.timer.clock
        return cls(scheduler, executor, new_state=begin, clock=clock, **options)

    def add(
        self, request_id: str, token_ids: list[int], params: SamplingParams, received_s: float
    ) -> Refusal | None:
        """Hand a request to the scheduler, unless it wants what only a model knows."""
        if params.logprobs is not None:
            return Refusal("unsupported", "logprobs: a simulated model has none")
        return super().add(request_id, token_ids, params, received_s)

    def step(self, now_s: float) -> list[TokenEvent | RequestFailed] | None:
        """Run what the scheduler decides at ``now_s``; None when there is nothing to run yet."""
        self.executor.timer.begin(now_s)
        events = super().step(now_s)
        if events is None:
            self.executor.timer.rest()
        return events


# Vocabulary of a model that is none of the engine's presets.
VOCAB_SIZE = 32_000


@dataclass(frozen=True, slots=True)
class SimulatedEngine:
    """What the core's process needs to build a simulated core.

    ``runner`` is what ``GET /servetwin/engine`` answers about the machine, ``noise`` a sample of
    factors on step durations.
    """

    model: str
    policies: PolicyConfig
    step_time: StepTime
    noise: NoiseSample
    runner: dict[str, Any]
    seed: int = 0
    step_log: Path | None = None

    def build(self, clock: CoreClock) -> tuple[EngineCore, dict[str, Any]]:
        """Return the core on ``clock`` and the facts about it; call it in the core's process.

        Raises ``EngineError`` where the step log cannot be written.
        """
        scheduler = build_scheduler(self.policies)
        vocab_size = PRESETS[self.model].vocab_size if self.model in PRESETS else VOCAB_SIZE
        facts = core_facts(
            [self.model], vocab_size, self.policies, scheduler.memory, self.runner, clock,
            self.step_log,
        )  # fmt: skip
        noise = StepNoise(self.noise, np.random.default_rng(self.seed))
        executor = SimulatedExecutor(
            Answers(vocab_size, self.seed), self.step_time, noise, StepTimer(clock)
        )
        log = StepLogFile(self.step_log, facts) if self.step_log else None
        prefix_cache = self.policies.prefix_cache
        return SimulatedCore.over(scheduler, executor, prefix_cache=prefix_cache, log=log), facts


def simulated_engine(
    servers: "Deployment",
    policies: "PolicyOptions",
    *,
    seed: int = 0,
    step_log: Path | None = None,
) -> SimulatedEngine:
    """Return the engine that the options describe; ``policies`` win over those of its profile.

    The API latency of a profile is left out: a real HTTP process stands before the core.
    Raises ``PolicyError`` for impossible policies, ``ProfileError`` where their KV layout was not
    measured, ``EngineError`` for what a core cannot serve.
    """
    base = policies.laid_on(servers.servers()).scenario()
    server, config = base.profile, base.policies
    if base.cluster.splits:
        raise EngineError(
            "technique prefill-decode-split cannot be served: it needs several servers; use "
            "servetwin replay"
        )
    if config.draft_rows:
        raise EngineError(
            f"draft_rows {config.draft_rows} cannot be served: a core sends one token of a "
            "sequence per step; use servetwin replay, or draft_rows: 0"
        )
    memory = build_scheduler(config).memory
    steps = server.step_time(memory.layout)
    machine = server.engine if isinstance(server, Profile) else {}
    layout = {"layout": memory.layout, "block_tokens": memory.block_tokens}
    return SimulatedEngine(
        str(machine.get("model", servers.model or server.name)),
        config,
        steps.model(),
        steps.noise_factors(),
        {**machine, **layout, "simulated": server.describe()},
        seed,
        step_log,
    )
