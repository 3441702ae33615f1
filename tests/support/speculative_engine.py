"""Small engines whose decodes verify drafts, and what they say."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import torch

from servetwin.engine.core.core import EngineCore
from servetwin.engine.core.runner import Runner, RunnerOptions
from servetwin.engine.drafting.drafts import Drafts
from servetwin.engine.drafting.speculative_runner import SpeculativeRunner
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.model_config import ModelConfig, model_preset
from servetwin.engine.models.weights import Weights, random_weights
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import KVLayout
from tests.support.memory_step_log import MemoryStepLog
from tests.support.timed_requests import TimedRequest, run_requests

STD = 0.06
SAYS_MUCH = replace(model_preset("tiny"), tie_embeddings=False)
"""With weights of this deviation and an untied head a model does not echo itself."""
SIXTEEN = replace(SAYS_MUCH, hidden_size=32, layers=2, head_dim=8, ffn_size=64, vocab_size=16)
"""A model with a vocabulary of sixteen."""
SAME, OTHER, NOISY = 0, 1, 100
"""Seeds of draft models: of the target's weights, of a smaller model, of the target's and noise."""

CHAIN = (1, 1, 1)
DRAFTS = {
    "another model": Drafts("model", CHAIN, seed=OTHER),
    "the model itself": Drafts("model", CHAIN, seed=SAME),
    "a noisy copy": Drafts("model", CHAIN, seed=NOISY),
    "its first layer": Drafts("layers", CHAIN, layer_share=0.5),
    "unsure layers": Drafts("layers", CHAIN, layer_share=0.5, least_confidence=0.02),
    "low entropy": Drafts("model", CHAIN, seed=NOISY, most_entropy=4.5),
    "n-grams": Drafts("n-gram", CHAIN),
    "a tree": Drafts("model", (3, 2, 1), seed=OTHER),
    "a tree of the model": Drafts("model", (2, 2), seed=SAME),
    "a tree of a noisy copy": Drafts("model", (3, 2, 1), seed=NOISY),
    "a tree of layers": Drafts("layers", (2, 1, 2)),
}
POLICIES = PolicyConfig(
    kv_tokens=1024, block_tokens=8, max_model_len=192, max_seqs=6, token_budget=192
)


def runner_of(
    drafts: Drafts,
    config: ModelConfig = SAYS_MUCH,
    *,
    layout: KVLayout = "paged",
    kv_tokens: int = 1024,
    block_tokens: int = 8,
    std: float = STD,
    attention: str = "auto",
    kv_format: str = "as-dtype",
) -> Runner:
    """A runner with these drafts, if there are any."""
    computed = Computation("cpu", attention=attention, kv_format=kv_format, drafts=drafts)
    options: RunnerOptions = {
        "layout": layout,
        "kv_tokens": kv_tokens,
        "block_tokens": block_tokens,
        "weight_std": std,
    }
    if drafts.drafter == "none":
        return Runner(config, computed, **options)
    return SpeculativeRunner(
        config,
        computed,
        **options,
        draft_config=_draft_config(config, drafts.seed),
        load_draft=partial(_draft_weights, config, drafts.seed, std),
    )


def engine_core(
    policies: PolicyConfig, drafts: Drafts, attention: str = "auto", kv_format: str = "as-dtype"
) -> EngineCore:
    """An engine with these drafts; ``Drafts()`` are none."""
    scheduler = build_scheduler(policies)
    memory = scheduler.memory
    runner = runner_of(
        drafts,
        layout=memory.layout,
        kv_tokens=memory.capacity_tokens,
        block_tokens=memory.block_tokens,
        attention=attention,
        kv_format=kv_format,
    )
    cached = policies.prefix_cache
    return EngineCore(scheduler, runner, prefix_cache=cached, log=MemoryStepLog())


def speculative(drafts: Drafts, policies: PolicyConfig = POLICIES) -> PolicyConfig:
    """Policies that fit the drafts."""
    return replace(policies, draft_rows=drafts.tree.drafts)


def said(core: EngineCore, requests: Iterable[TimedRequest]) -> dict[str, list[int]]:
    """The tokens of each request."""
    outputs: dict[str, list[int]] = {}
    for event in run_requests(core, requests):
        outputs.setdefault(event.request_id, []).append(event.token_id)
    return outputs


def said_by_sample(
    core: EngineCore, requests: Iterable[TimedRequest]
) -> dict[tuple[str, int], list[int]]:
    """The tokens of each answer."""
    outputs: dict[tuple[str, int], list[int]] = {}
    for event in run_requests(core, requests):
        outputs.setdefault((event.request_id, event.sample), []).append(event.token_id)
    return outputs


def acceptance(core: EngineCore) -> float:
    """Accepted tokens per pass."""
    stats = core.stats()
    return stats.accepted_tokens / max(1, stats.draft_passes)


def _draft_config(config: ModelConfig, seed: int) -> ModelConfig:
    return replace(config, layers=1) if seed == OTHER else config


def _draft_weights(
    config: ModelConfig, seed: int, std: float, dtype: torch.dtype, device: torch.device
) -> Weights:
    drawn = SAME if seed == NOISY else seed
    own = _draft_config(config, seed)
    weights = random_weights(own, dtype=dtype, device=device, seed=drawn, std=std)
    layers = list(weights.layers)
    if seed == NOISY:
        noise = torch.Generator().manual_seed(1)
        for layer in layers:
            for matrix in (layer["qkv"], layer["gate_up"], layer["down"]):
                matrix.add_(torch.randn(matrix.shape, generator=noise), alpha=std / 4)
    return replace(weights, layers=layers)
