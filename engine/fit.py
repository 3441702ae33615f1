"""Whether a model, its policies and a computation go together on the bundled engine."""

from collections.abc import Iterable

from servetwin.engine.models.computation import Computation
from servetwin.engine.models.model_config import ModelConfig
from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import KVMemory
from servetwin.policies.sequence import Sequence
from servetwin.workloads.errors import EngineError

Refusal = tuple[bool, str]
"""Whether something does not go together, and what to say then."""


def require_fit(
    model: ModelConfig, policies: PolicyConfig, computation: Computation, memory: KVMemory
) -> None:
    """Raise ``EngineError`` with the first thing that does not go together."""
    why = memory.refusal(Sequence("shortest", 0.0, prompt_tokens=1, max_tokens=1))
    _require(
        (
            *_on_host(policies, computation),
            *_ranks(policies, computation),
            *_exits(computation),
            *_drafts(policies, computation),
            (
                policies.max_model_len > model.max_model_len,
                f"max_model_len: {policies.max_model_len} is longer than the "
                f"{model.max_model_len} tokens of model {model.name}",
            ),
            (
                bool(why),
                f"kv_tokens: even the shortest request {why}; "
                "give more kv_tokens, a smaller max_model_len, or another reservation",
            ),
        )
    )


def _require(refusals: Iterable[Refusal]) -> None:
    for applies, message in refusals:
        if applies:
            raise EngineError(message)


def _on_host(policies: PolicyConfig, computation: Computation) -> Iterable[Refusal]:
    """Return what cannot be without a KV cache."""
    setting = "host_cache_tokens" if policies.host_cache_tokens else "preemption 'swap'"
    uncached = not computation.kv_cache
    return (
        (
            uncached and _moves_keys(policies),
            f"{setting}: without a KV cache there is nothing to keep in host memory; turn the KV "
            "cache on, or use preemption: recompute and host_cache_tokens: 0",
        ),
        (
            uncached and bool(computation.drafts.widths),
            "drafts are verified against stored keys and values; turn the KV cache on, or do not "
            "draft",
        ),
    )


def _moves_keys(policies: PolicyConfig) -> bool:
    """Return whether keys and values go to host memory."""
    return policies.preemption == "swap" or bool(policies.host_cache_tokens)


def _ranks(policies: PolicyConfig, computation: Computation) -> Iterable[Refusal]:
    """Return what several ranks, and drafts, do not do."""
    ranks, adapters = computation.tensor_parallel, bool(computation.adapters)
    several, drafts = ranks > 1, computation.drafts.drafter != "none"
    return (
        (
            drafts and adapters,
            "adapters: drafts are made without them; use batching: continuous",
        ),
        (
            several and adapters,
            f"tensor_parallel: {ranks} ranks divide no adapters; use 1 rank",
        ),
        (
            several and drafts,
            f"tensor_parallel: {ranks} ranks verify no drafts; use batching: continuous, or 1 rank",
        ),
        (
            several and _moves_keys(policies),
            f"tensor_parallel: {ranks} ranks move no keys and values to host memory; "
            "use preemption: recompute and no host_cache_tokens, or 1 rank",
        ),
    )


def _exits(computation: Computation) -> Iterable[Refusal]:
    others = {
        "drafts": computation.drafts.drafter != "none",
        "adapters": bool(computation.adapters),
        "tensor_parallel": computation.tensor_parallel > 1,
        "a server without a KV cache": not computation.kv_cache,
    }
    given = [name for name, is_given in others.items() if is_given]
    both = bool(computation.exits and given)
    return ((both, f"early exit does not go together with {' or '.join(given)}"),)


def _drafts(policies: PolicyConfig, computation: Computation) -> Iterable[Refusal]:
    """Return why decodes verify other drafts than are made."""
    drafts = computation.drafts
    rows = policies.draft_rows if policies.batching == "speculative" else 0
    made = drafts.tree.drafts if drafts.widths else 0
    return (
        (
            bool(rows and not made),
            f"batching: speculative with draft_rows {rows} needs a drafter: --technique "
            f"speculative:drafts={rows} has one; or set draft_rows to 0",
        ),
        (
            made != rows,
            f"drafts of {made} tokens a pass need batching: speculative with draft_rows {made}, "
            f"not {policies.batching} with {policies.draft_rows}",
        ),
        (
            bool(rows and drafts.drafter == "model" and policies.host_cache_tokens),
            "host_cache_tokens: the host keeps no keys and values of draft model "
            f"{drafts.model}; set 0, or draft with layers or n-grams",
        ),
        (
            bool(rows and not policies.prompt_token),
            "prompt_token false is simulated only; the bundled engine's prompts yield the first "
            "token, use prompt_token: true",
        ),
    )
