"""The real scheduler and the real runner on given prompts, with the logits of every new token."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from servetwin.engine.core.core import EngineCore
from servetwin.engine.core.messages import CoreStats, TokenEvent
from servetwin.engine.core.runner import Runner
from servetwin.engine.kv.forgetting import kept_tokens
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.model_config import ModelConfig
from servetwin.engine.models.weights import LoadWeights
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.sampling.token_state import TokenState
from servetwin.policies.batch import Batch
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.sequence import output_id
from tests.support.engine_oracle import STD
from tests.support.memory_step_log import MemoryStepLog


class LogitRunner(Runner):
    """Keeps the logits of every token, and starts with a KV memory that no step should read."""

    def __init__(self, config: ModelConfig, computation: Computation, **options: Any) -> None:
        super().__init__(config, computation, weight_std=STD, **options)
        self.store.keys.fill_(torch.nan)
        self.store.values.fill_(torch.nan)
        for stored in self.states.tensors if self.states else ():
            stored.fill_(torch.nan)
        self.seen: dict[str, list[torch.Tensor]] = defaultdict(list)

    def logits(self, batch: Batch, states: Mapping[str, TokenState]) -> torch.Tensor:
        logits = super().logits(batch, states)
        sampled = [entry.seq.request_id for entry in batch.entries if entry.yields_token]
        for request_id, row in zip(sampled, logits, strict=True):
            self.seen[request_id].append(row.clone())
        return logits


@dataclass(frozen=True)
class RecordedRun:
    tokens: list[list[int]]
    """By prompt; those of an aborted one until then."""
    logits: list[torch.Tensor]
    """Of each prompt [new token, vocabulary]."""
    stats: CoreStats
    preemptions: int
    hit_tokens: list[int]
    """Prompt tokens of each request whose keys and values were there."""
    further: list[list[int]]
    """Tokens of the second answer to each prompt and so on, prompt by prompt."""


def run_greedy(
    config: ModelConfig,
    policies: PolicyConfig,
    prompts: list[list[int]],
    new_tokens: int,
    *,
    joins: Sequence[int] = (),
    aborts: Mapping[int, int] = {},
    answers: int = 1,
    computation: Computation = Computation(device="cpu"),  # noqa: B008, it is frozen
    load_weights: LoadWeights | None = None,
) -> RecordedRun:
    """Answer the prompts, of which each joins before a step of ``joins`` (none: before the first);
    ``aborts`` has the step before which a prompt is aborted.
    """
    scheduler = build_scheduler(policies)
    memory = scheduler.memory
    runner = LogitRunner(
        config,
        computation,
        layout=memory.layout,
        kv_tokens=memory.capacity_tokens,
        block_tokens=memory.block_tokens,
        load_weights=load_weights,
        kept=kept_tokens(config, policies, computation),
    )
    log = MemoryStepLog()
    core = EngineCore(scheduler, runner, prefix_cache=policies.prefix_cache, log=log)
    params = SamplingParams(new_tokens, ignore_eos=True, n=answers)
    waiting = dict(enumerate(joins or [0] * len(prompts)))
    tokens: dict[str, list[int]] = defaultdict(list)
    step = 0
    while waiting or core.unfinished:
        for index in [index for index, join in waiting.items() if join <= step]:
            assert core.add(str(index), prompts[index], params, core.clock()) is None
            del waiting[index]
        for index in [index for index, at in aborts.items() if at == step]:
            core.abort(str(index))
        for event in core.step(core.clock()) or []:
            assert isinstance(event, TokenEvent), event
            tokens[output_id(event.request_id, event.sample)].append(event.token_id)
        step += 1
    names = [str(index) for index in range(len(prompts))]
    hits = {request_id: tokens for record in log.records for request_id, tokens in record.hits}
    return RecordedRun(
        [tokens[name] for name in names],
        [torch.stack(runner.seen[name]) for name in names],
        core.stats(),
        sum(len(record.preempted) for record in log.records),
        [hits.get(name, 0) for name in names],
        [tokens[output_id(name, answer)] for name in names for answer in range(1, answers)],
    )
