"""Whether an engine's KV memory forgets, and what it keeps. Free of torch."""

from servetwin.engine.kv.kept_tokens import KeptTokens
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.model_config import ModelConfig
from servetwin.policies.config import PolicyConfig
from servetwin.workloads.errors import EngineError


def kept_tokens(
    model: ModelConfig, policies: PolicyConfig, computation: Computation
) -> KeptTokens | None:
    """Return what is kept of a sequence; None where memory keeps all.

    Raises ``EngineError`` for a windowed memory that is not that of the model, and for sinks
    without one.
    """
    total = policies.kv_window_tokens
    if policies.kv != "windowed":
        if model.sink_tokens:
            raise EngineError(
                f"sinks: {model.sink_tokens} of model {model.name} have places within a cache that "
                "forgets; use kv: windowed with kv_window_tokens for the sinks and the window"
            )
        return None
    if policies.kv_window_share != 1 or policies.kv_state_tokens:
        raise EngineError(
            "kv 'windowed' with kv_window_share below 1 or kv_state_tokens is simulated only; the "
            "layers of the bundled engine share one table of blocks, so all keep the same tokens"
        )
    if total is None:
        return None
    _check_model(model, total)
    if why := cannot_forget(model, computation):
        raise EngineError(f"kv 'windowed': {why}; use kv: paged")
    return KeptTokens(total - model.sink_tokens, model.sink_tokens)


def _check_model(model: ModelConfig, total: int) -> None:
    window = total - model.sink_tokens
    if window < 1:
        raise EngineError(
            f"kv_window_tokens: {total} leaves no window beside {model.sink_tokens} sinks; give "
            "more"
        )
    if model.windows and set(model.windows) != {window}:
        named = sorted({str(each or "none") for each in model.windows})
        raise EngineError(
            f"kv_window_tokens: {total} with {model.sink_tokens} sinks keeps a window of {window} "
            f"in every layer; those of model {model.name} are {', '.join(named)}, use kv: paged"
        )


def cannot_forget(model: ModelConfig, computation: Computation) -> str | None:
    """Return what the engine does with stored tokens that a window forgets."""
    if not computation.kv_cache:
        return "without a KV cache there is nothing to forget"
    if computation.drafts.widths:
        return "rejected drafts would take the places of tokens that the window still needs"
    if computation.tensor_parallel > 1:
        return "ranks keep every token"
    if model.latent is not None or model.kv_sharing > 1:
        return "latents, and keys that layers share, are kept whole"
    return None
