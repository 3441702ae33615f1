"""When a waiting prompt may join a step, and how what was admitted gets its memory."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from servetwin.policies.batch import Batch
from servetwin.policies.config import PolicyConfig
from servetwin.policies.lockstep import Lockstep
from servetwin.policies.protocols import AdmittingMemory, KVMemory

if TYPE_CHECKING:
    from servetwin.policies.schedulers.room_rules import ChunkRoom

# From a step, the rows that a prompt still needs, and those left of the budget: may it join?
# ``budget_count: padded`` replaces ``whole`` alone.
Joins: TypeAlias = Callable[[Batch, int, int], bool]


def in_pieces(batch: Batch, rows: int, left: int) -> bool:
    """Let a piece of a prompt fill whatever rows are left (Sarathi-Serve, OSDI 2024)."""
    return True


def whole(batch: Batch, rows: int, left: int) -> bool:
    """Let prompts join whole; the first of a step may be split, so that none starves."""
    return not batch.chunks or rows <= left


def padded(batch: Batch, rows: int, left: int) -> bool:
    """Let prompts join whole, each counted as long as the longest of the step (vLLM 0.2)."""
    prompts = [entry.tokens for entry in batch.chunks]
    return not prompts or (len(prompts) + 1) * max(rows, *prompts) <= left + sum(prompts)


class Room(NamedTuple):
    """How sequences hold a memory.

    ``admitting`` takes them in, ``refusing`` says who can never be, ``decodes`` is their group once
    they decode; ``chunks`` gives prompts their room chunk by chunk, None where they have it all.
    """

    admitting: AdmittingMemory
    refusing: AdmittingMemory
    decodes: Lockstep
    chunks: "ChunkRoom | None" = None


def room_for(memory: KVMemory, config: PolicyConfig) -> Room:
    """Return how the sequences of a continuous scheduler hold ``memory``."""
    if config.admission == "full" or config.draft_rows or config.prompt_blocks == "chunk":
        from servetwin.policies.schedulers.room_rules import rare_room

        return Room(*rare_room(memory, config))
    growing = memory if memory.layout == "paged" else None
    return Room(memory, memory, Lockstep(memory.block_tokens, growing))
