"""Whether an engine's KV memory forgets, and what it keeps. Free of torch."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from servetwin.engine.models.computation import Computation
from servetwin.engine.models.model_config import ModelConfig
from servetwin.policies.config import PolicyConfig
from servetwin.policies.kv.kv_groups import KVGroup, parse_groups
from servetwin.workloads.errors import EngineError


@dataclass(frozen=True, slots=True)
class KeptTokens:
    """The first ``sinks`` positions and the last ``window`` ones: each of these takes the place of
    the one that leaves the window.
    """

    window: int
    sinks: int = 0

    @property
    def total(self) -> int:
        """The most positions that are kept of a sequence."""
        return self.sinks + self.window

    def positions(self, computed_tokens: int) -> NDArray[np.int64]:
        """Return the positions that are kept of ``computed_tokens``, in order."""
        first = max(self.sinks, computed_tokens - self.window)
        sinks = np.arange(min(self.sinks, computed_tokens))
        return np.concatenate([sinks, np.arange(first, computed_tokens)])

    def slots(
        self, blocks: list[int], positions: NDArray[np.int64], block_tokens: int
    ) -> NDArray[np.int64]:
        """Return where positions lie in the blocks of a sequence."""
        place = np.minimum(positions, self.sinks + (positions - self.sinks) % self.window)
        first_slots = np.array(blocks, dtype=np.int64) * block_tokens
        slots: NDArray[np.int64] = first_slots[place // block_tokens] + place % block_tokens
        return slots

    def slot(self, blocks: list[int], position: int, block_tokens: int) -> int:
        """Return where one position lies."""
        place = min(position, self.sinks + (position - self.sinks) % self.window)
        return blocks[place // block_tokens] * block_tokens + place % block_tokens


def kept_tokens(
    model: ModelConfig, policies: PolicyConfig, computation: Computation
) -> KeptTokens | None:
    """Return what is kept of a sequence; None where memory keeps all.

    Raises ``EngineError`` for a memory that forgets unlike the model, for sinks without one, and
    for states without blocks of theirs.
    """
    if model.state_space:
        _check_states(model, policies, computation)
        return None
    if policies.kv != "grouped" or policies.kv_groups == "full":
        if model.sink_tokens:
            raise EngineError(
                f"sinks: {model.sink_tokens} of model {model.name} have places within a cache that "
                "forgets; use kv: grouped with kv_groups: kept:TOKENS for the sinks and the window"
            )
        return None
    group, *others = parse_groups(policies.kv_groups, policies.block_tokens, policies.prefix_cache)
    if others or group.kind != "kept":
        raise EngineError(
            f"kv_groups: {policies.kv_groups} is simulated only; the layers of the bundled engine "
            "share one table of blocks, so all keep the same tokens: full, or kept:TOKENS"
        )
    total = group.tokens
    _check_model(model, total)
    if why := cannot_forget(model, computation):
        raise EngineError(f"kv 'grouped': {why}; use kv: paged")
    return KeptTokens(total - model.sink_tokens, model.sink_tokens)


def _check_states(model: ModelConfig, policies: PolicyConfig, computation: Computation) -> None:
    """Raise where states have no blocks, or something is done that they cannot follow."""
    groups = parse_groups(policies.kv_groups, policies.block_tokens, policies.prefix_cache)
    others = [group for group in groups if group.kind not in ("state", "fixed") or group.tokens]
    full = [KVGroup("full")] if model.stored_layers else []
    if policies.kv != "grouped" or others != full or len(others) == len(groups):
        raise EngineError(
            f"kv_groups: {policies.kv_groups} with kv: {policies.kv} has no blocks for the states "
            f"of model {model.name}; use kv: grouped with kv_groups: {model.kv_groups}"
        )
    whys = {
        "drafts": (computation.drafts.widths, "what a state took in cannot be taken out again"),
        "preemption": (policies.preemption == "swap", "states are not moved to host memory"),
        "kv_cache": (not computation.kv_cache, "states are not computed anew in each step"),
        "kv_memory_share": (computation.kv_memory_share, "blocks have states beside their tokens"),
    }
    for name, (given, why) in whys.items():
        if given:
            raise EngineError(f"{name}: of model {model.name}, {why}; leave it out")


def _check_model(model: ModelConfig, total: int) -> None:
    window = total - model.sink_tokens
    if window < 1:
        raise EngineError(
            f"kv_groups: kept:{total} leaves no window beside {model.sink_tokens} sinks; give more"
        )
    if model.layer_thetas:
        raise EngineError(
            f"kv_groups: layers of model {model.name} turn differently; use kv: paged"
        )
    if model.windows and set(model.windows) != {window}:
        named = sorted({str(each or "none") for each in model.windows})
        raise EngineError(
            f"kv_groups: kept:{total} with {model.sink_tokens} sinks keeps a window of {window} "
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
    if model.latent is not None or model.kv_sharing > 1 or not model.plain_scores:
        return "latents, keys that layers share, and those with caps or ALiBi are kept whole"
    return None
