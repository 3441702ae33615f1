"""The core with the real runner on a fake clock; what is free on the device holds NaN."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from servetwin.engine.core.core import EngineCore
from servetwin.engine.core.core_process import CoreLoop
from servetwin.engine.core.messages import Add, Message, RequestFailed, Stop, TokenEvent, Update
from servetwin.engine.core.runner import Runner
from servetwin.engine.core.step_input import StepInput
from servetwin.engine.core.step_isolation import KVMover
from servetwin.engine.kv.forgetting import kept_tokens
from servetwin.engine.kv.host_memory import kv_movers
from servetwin.engine.kv.kv_store import KVStore
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.model_config import ModelConfig, model_preset
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.sampling.token_state import NewToken
from servetwin.policies.batch import Batch
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.kv.grouped import GroupedKV
from servetwin.policies.kv.paged import PagedKV
from servetwin.policies.sequence import output_id
from servetwin.sim.experiments.decision_check import DecisionCheck, check_decisions
from tests.support.core_story import STEP_S, FakeClock, Script, ScriptedInbox
from tests.support.memory_step_log import MemoryStepLog

MODEL = replace(model_preset("tiny"), tie_embeddings=False)
SMALL = PolicyConfig(
    kv_tokens=96, block_tokens=4, max_model_len=64, max_seqs=6, token_budget=16, wait_limit_s=0.5
)
_PLAIN: dict[str, dict[str, list[int]]] = {}
"""Tokens by requests, as ``plain_tokens`` found them."""


class Poisoner:
    """Fills the blocks that nothing holds, and no prefix cache keeps, after all have moved."""

    def __init__(self, memory: PagedKV | GroupedKV, store: KVStore) -> None:
        self._memory, self._store = memory, store

    def before(self, batch: Batch) -> dict[str, Exception]:
        size = self._store.block_tokens
        if self._store.tokens < self._memory.capacity_tokens:
            return {}
        for block in self._memory._returned:
            for stored in self._store.tensors:
                stored[:, block * size : (block + 1) * size] = torch.nan
        return {}

    def after(self, batch: Batch, failed: dict[str, Exception]) -> None:
        pass


class ClockedRunner:
    """A runner whose steps take a second of the fake clock each."""

    def __init__(self, runner: Runner, clock: FakeClock) -> None:
        self._runner, self._clock = runner, clock

    def execute(self, batch: Batch, states: Mapping[str, Any]) -> dict[str, list[NewToken]]:
        self._clock.now_s += STEP_S
        return self._runner.execute(batch, states)

    def copy_blocks(self, copies: list[tuple[int, int]]) -> None:
        self._runner.copy_blocks(copies)


class CountingRunner(Runner):
    """Notes the rows of each step."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.computed_rows: list[int] = []
        self.most_rows = 1 << 30
        """Rows for which there is memory."""

    def compute(self, step: StepInput) -> torch.Tensor:
        if len(step.positions) > self.most_rows:
            torch.empty(1 << 60)
        self.computed_rows.append(len(step.positions))
        return super().compute(step)


@dataclass
class Served:
    """What a core has done."""

    core: EngineCore
    log: MemoryStepLog
    updates: list[Update]
    movers: list[Any]
    runner: Runner
    computed_rows: list[int]
    """Rows of the matrices of each step."""

    @property
    def tokens(self) -> dict[str, list[int]]:
        """Token ids by request."""
        tokens: dict[str, list[int]] = {}
        for update in self.updates:
            for event in update.events:
                if isinstance(event, TokenEvent):
                    name = output_id(event.request_id, event.sample)
                    tokens.setdefault(name, []).append(event.token_id)
        return tokens

    @property
    def failures(self) -> list[str]:
        """Reasons of the requests that failed."""
        events = [event for update in self.updates for event in update.events]
        return [event.reason for event in events if isinstance(event, RequestFailed)]

    @property
    def swapped_tokens(self) -> int:
        """Positions that moved over the host link."""
        return sum(record.swapped_tokens for record in self.log.records)

    def replayed(self, config: PolicyConfig) -> DecisionCheck:
        """What the simulator decides at the recorded times."""
        return check_decisions(self.log.arrivals, config, self.log.records)


def serve(
    config: PolicyConfig,
    script: Script,
    computation: Computation = Computation(),  # noqa: B008, it is frozen
    most_rows: int = 1 << 30,
    model: ModelConfig = MODEL,
) -> Served:
    """Run a script of messages on a core whose free blocks are poisoned."""
    scheduler, clock, log = build_scheduler(config), FakeClock(), MemoryStepLog()
    memory = scheduler.memory
    runner = CountingRunner(
        model,
        computation,
        layout=memory.layout,
        kv_tokens=memory.capacity_tokens,
        block_tokens=memory.block_tokens,
        weight_std=0.06,
        kept=kept_tokens(model, config, computation),
    )
    runner.most_rows = most_rows
    for stored in runner.store.tensors:
        stored.fill_(torch.nan)
    movers: list[Any] = kv_movers(config, memory, runner.stores)
    poisoner: list[KVMover] = []
    if isinstance(memory, PagedKV | GroupedKV):
        poisoner.append(Poisoner(memory, runner.store))
    core = EngineCore(
        scheduler,
        ClockedRunner(runner, clock),
        prefix_cache=config.prefix_cache,
        clock=clock,
        log=log,
        movers=[*movers, *poisoner],
    )
    served = Served(core, log, [], movers, runner, runner.computed_rows)
    inbox = ScriptedInbox(clock, [*script, (5000.0, Stop())])
    CoreLoop(core, inbox, served.updates.append).run()
    return served


def plain_tokens(
    requests: Iterable[tuple[float, Message]], model: ModelConfig = MODEL
) -> dict[str, list[int]]:
    """What the requests get one after the other, with memory for all and without any sharing."""
    messages = [message for _, message in requests]
    key = repr((messages, model))
    if key not in _PLAIN:
        roomy = replace(SMALL, kv_tokens=8192, max_seqs=1, token_budget=64)
        script = [(0.0, message) for message in messages]
        _PLAIN[key] = serve(roomy, script, model=model).tokens
    return _PLAIN[key]


def random_requests(
    seed: int, count: int = 8, shared_tokens: int = 0, samples: int = 1
) -> list[tuple[float, Add]]:
    """Requests in bursts, each for so many samples; with ``shared_tokens``, most open with one of
    two common prefixes.
    """
    rng = np.random.default_rng(seed)
    prefixes = rng.integers(300, 500, (2, shared_tokens)).tolist()
    requests, at_s = [], 0.0
    for index in range(count):
        at_s += float(rng.choice([0.0, 1.0, 7.0], p=[0.6, 0.3, 0.1]))
        prompt = rng.integers(300, 500, int(rng.integers(2, 24))).tolist()
        if shared_tokens and rng.random() < 0.8:
            prompt = prefixes[int(rng.integers(2))] + prompt[:8]
        heat = float(rng.choice([0.0, 1.0]))
        output = int(rng.integers(1, 30))
        params = SamplingParams(output, temperature=heat, seed=index, ignore_eos=True, n=samples)
        requests.append((at_s, Add(f"r{index}", prompt, params)))
    return requests
