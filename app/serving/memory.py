"""What the engine's KV memory forgets, given what its model sees."""

from dataclasses import replace

from servetwin.engine.kv.forgetting import cannot_forget
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.model_config import ModelConfig
from servetwin.policies.config import PolicyConfig
from servetwin.sim.techniques.setup import Setup
from servetwin.workloads.errors import PolicyError


def forgetting(
    model: ModelConfig, policies: PolicyConfig, computation: Computation
) -> PolicyConfig:
    """Return policies whose memory forgets what no layer sees any more.

    Where it cannot (a layer sees all, prefixes are shared), a window is a mask alone; sinks have
    their places in a cache that forgets, so there the reason comes from what cannot.
    """
    window = model.windows[0] if len(set(model.windows)) == 1 else None
    if window is None:
        return policies
    forgets = policies.kv == "paged" and not policies.prefix_cache
    if model.sink_tokens or (forgets and cannot_forget(model, computation) is None):
        total = window + model.sink_tokens
        return replace(policies, kv="windowed", kv_window_tokens=total, kv_window_share=1.0)
    return policies


def require_one_memory(setup: Setup) -> None:
    """Raise ``PolicyError`` for weights or keys that are streamed from a second memory."""
    offload = setup.deployment.offload
    if offload.resident_weights < 1 or offload.resident_kv < 1:
        raise PolicyError(
            "all that a step reads lies in the memory of its device: a CPU has no second one, and "
            "on a GPU nothing is streamed in during a step (preemption: swap and "
            "host_cache_tokens move keys and values between steps)"
        )
