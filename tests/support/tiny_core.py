"""A core over a small real model that does not echo itself."""

from dataclasses import replace

from servetwin.engine.core.core import EngineCore
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig


def tiny_core(config: PolicyConfig) -> EngineCore:
    """The core of ``tiny`` with an untied head and large weights, under ``config``."""
    from servetwin.engine.core.runner import Runner
    from servetwin.engine.models.model_config import model_preset

    scheduler = build_scheduler(config)
    memory = scheduler.memory
    runner = Runner(
        replace(model_preset("tiny"), tie_embeddings=False),
        layout=memory.layout,
        kv_tokens=memory.capacity_tokens,
        block_tokens=memory.block_tokens,
        weight_std=0.06,
    )
    return EngineCore(scheduler, runner, prefix_cache=config.prefix_cache)
