"""Whether a model, its policies and a computation go together on the bundled engine."""

from collections.abc import Iterator
from itertools import chain

from servetwin.engine.models.computation import Computation
from servetwin.engine.models.model_config import ModelConfig
from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import KVMemory
from servetwin.policies.sequence import Sequence
from servetwin.workloads.errors import EngineError


def require_fit(
    model: ModelConfig, policies: PolicyConfig, computation: Computation, memory: KVMemory
) -> None:
    """Raise ``EngineError`` with the first thing that does not go together."""
    refusals = chain(
        _of_computation(policies, computation),
        _of_drafts(policies, computation),
        _of_lengths(model, policies, memory),
    )
    for message in refusals:
        raise EngineError(message)


def _of_computation(policies: PolicyConfig, computation: Computation) -> Iterator[str]:
    """Yield what a computation does not do."""
    if policies.far_cache_tokens:
        yield "far_cache_tokens is simulated only: the engine has the host's memory; set it to 0"
    if policies.adapter_slots:
        yield "adapter_slots is simulated only: the engine keeps all adapters loaded; set it to 0"
    uncached, ranks = not computation.kv_cache, computation.tensor_parallel
    drafts, adapters = computation.drafts.drafter != "none", bool(computation.adapters)
    on_host = policies.preemption == "swap" or policies.host_cache_tokens
    if uncached and on_host:
        setting = "host_cache_tokens" if policies.host_cache_tokens else "preemption 'swap'"
        yield (
            f"{setting}: without a KV cache there is nothing to keep in host memory; turn the KV "
            "cache on, or use preemption: recompute and host_cache_tokens: 0"
        )
    if uncached and drafts:
        yield (
            "drafts are verified against stored keys and values; turn the KV cache on, or do not "
            "draft"
        )
    if drafts and adapters:
        yield "adapters: drafts are made without them; use batching: continuous"
    if ranks > 1 and adapters:
        yield f"tensor_parallel: {ranks} ranks divide no adapters; use 1 rank"
    if ranks > 1 and drafts:
        yield (
            f"tensor_parallel: {ranks} ranks verify no drafts; use batching: continuous, or 1 rank"
        )
    if ranks > 1 and on_host:
        yield (
            f"tensor_parallel: {ranks} ranks move no keys and values to host memory; "
            "use preemption: recompute and no host_cache_tokens, or 1 rank"
        )
    given = {"drafts": drafts, "adapters": adapters, "tensor_parallel": ranks > 1}
    others = [name for name, is_given in given.items() if is_given]
    others += ["a server without a KV cache"] * uncached
    if computation.exits and others:
        yield f"early exit does not go together with {' or '.join(others)}"


def _of_drafts(policies: PolicyConfig, computation: Computation) -> Iterator[str]:
    """Yield why decodes verify other drafts than are made."""
    drafts = computation.drafts
    rows = policies.draft_rows
    made = drafts.tree.drafts if drafts.widths else 0
    if rows and not made:
        yield (
            f"draft_rows {rows} needs a drafter: --technique speculative:drafts={rows} has one; or "
            "set draft_rows to 0"
        )
    if made != rows:
        yield f"drafts of {made} tokens a pass need draft_rows {made}, not {rows}"
    if rows and drafts.drafter == "model" and policies.host_cache_tokens:
        yield (
            f"host_cache_tokens: the host keeps no keys and values of draft model {drafts.model}; "
            "set 0, or draft with layers or n-grams"
        )
    if rows and not policies.prompt_token:
        yield (
            "prompt_token false is simulated only; the bundled engine's prompts yield the first "
            "token, use prompt_token: true"
        )


def _of_lengths(model: ModelConfig, policies: PolicyConfig, memory: KVMemory) -> Iterator[str]:
    """Yield why contexts do not fit the model, or requests the memory."""
    if policies.max_model_len > model.max_model_len:
        yield (
            f"max_model_len: {policies.max_model_len} is longer than the {model.max_model_len} "
            f"tokens of model {model.name}"
        )
    if why := memory.refusal(Sequence("shortest", 0.0, prompt_tokens=1, max_tokens=1)):
        yield (
            f"kv_tokens: even the shortest request {why}; "
            "give more kv_tokens, a smaller max_model_len, or another reservation"
        )
