"""The real scheduler and the real runner on given prompts, with the logits of every new token."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from engine.core.build import token_state
from engine.core.core import EngineCore
from engine.core.messages import CoreStats
from engine.core.runner import Runner, TokenState
from engine.models.computation import Computation
from engine.models.model_config import ModelConfig
from engine.models.weights import LoadWeights
from engine.sampling.sampling_params import SamplingParams
from policies.batch import Batch
from policies.config import PolicyConfig
from policies.registry import build_scheduler
from tests.support.engine_oracle import STD
from tests.support.timed_requests import run_requests


class LogitRunner(Runner):
    """Keeps the logits of every token, and starts with a KV memory that no step should read."""

    def __init__(self, config: ModelConfig, computation: Computation, **options: Any) -> None:
        super().__init__(config, computation, weight_std=STD, **options)
        self.store.keys.fill_(torch.nan)
        self.store.values.fill_(torch.nan)
        self.seen: dict[str, list[torch.Tensor]] = defaultdict(list)

    def logits(self, batch: Batch, states: Mapping[str, TokenState]) -> torch.Tensor:
        logits = super().logits(batch, states)
        sampled = [entry.seq.request_id for entry in batch.entries if entry.samples]
        for request_id, row in zip(sampled, logits, strict=True):
            self.seen[request_id].append(row.clone())
        return logits


@dataclass(frozen=True)
class RecordedRun:
    tokens: list[list[int]]
    logits: torch.Tensor
    """[prompt, new token, vocabulary]."""
    stats: CoreStats


def run_greedy(
    config: ModelConfig,
    policies: PolicyConfig,
    prompts: list[list[int]],
    new_tokens: int,
    computation: Computation = Computation(device="cpu"),  # noqa: B008, it is frozen
    load_weights: LoadWeights | None = None,
) -> RecordedRun:
    """Send all prompts at once; what each was answered, in their order."""
    scheduler = build_scheduler(policies)
    memory = scheduler.memory
    runner = LogitRunner(
        config,
        computation,
        layout=memory.layout,
        kv_tokens=memory.capacity_tokens,
        block_tokens=memory.block_tokens,
        load_weights=load_weights,
    )
    core = EngineCore(scheduler, runner, token_state, prefix_cache=policies.prefix_cache)
    params = SamplingParams(new_tokens, ignore_eos=True)
    requests = [(0.0, str(i), prompt, params) for i, prompt in enumerate(prompts)]
    tokens: dict[str, list[int]] = defaultdict(list)
    for event in run_requests(core, requests):
        tokens[event.request_id].append(event.token_id)
    names = [str(i) for i in range(len(prompts))]
    assert Counter({name: len(runner.seen[name]) for name in names}) == Counter(
        dict.fromkeys(names, new_tokens)
    )
    logits = torch.stack([torch.stack(runner.seen[name]) for name in names])
    return RecordedRun([tokens[name] for name in names], logits, core.stats())
