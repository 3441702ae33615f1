"""Rules of room that a configuration asks for beside blocks for a prompt and, one by one, a decode.

The whole length at once, below the peak of all that run, chunk by chunk; and room for drafts.
"""

from collections.abc import Iterable
from typing import TypeAlias

from servetwin.policies.config import PolicyConfig
from servetwin.policies.lockstep import Lockstep
from servetwin.policies.protocols import AdmittingMemory, ChunkMemory, KVMemory
from servetwin.policies.sequence import Sequence

# What ``admission.Room`` consists of.
RareRoom: TypeAlias = "tuple[AdmittingMemory, AdmittingMemory, Lockstep, ChunkRoom | None]"


def rare_room(memory: KVMemory, config: PolicyConfig) -> RareRoom:
    """Return what takes sequences in, what refuses them, the group of decodes, and chunk room.

    Decodes that verify drafts grow in paged memory; in contiguous or grouped memory they reserve
    all positions that they will ever hold.
    """
    by_pass = config.prompt_token and (config.kv != "grouped" or config.batching == "unified")
    grows = memory.layout == "paged" and (by_pass or not config.draft_rows)
    reserves = config.admission == "full" or (config.draft_rows > 0 and not grows)
    growing = memory if grows and not reserves else None
    reserved = Reserved(memory, config.draft_reach)
    admitting = reserved if reserves else memory
    refusing = reserved if config.draft_rows else admitting
    by_chunk = config.prompt_blocks == "chunk" and not reserves
    chunks = ChunkRoom(memory) if by_chunk and isinstance(memory, ChunkMemory) else None
    return admitting, refusing, _decodes(memory, growing, config), chunks


def _decodes(memory: KVMemory, growing: KVMemory | None, config: PolicyConfig) -> Lockstep:
    """Return the group of decodes: with drafts where they verify some."""
    size, drafts = memory.block_tokens, config.draft_rows
    if not drafts:
        return Lockstep(size, growing)
    from servetwin.policies.drafted_decodes import DraftedDecodes

    decodes = DraftedDecodes(1 + drafts, growing, size, config.draft_slots, config.decide_ahead)
    decodes.prompt_token = config.prompt_token
    return decodes


class Reserved:
    """A memory that gives a sequence room for its whole length at once; its decode lacks none.

    ``lookahead`` positions behind its answer are its own, too.
    """

    def __init__(self, memory: KVMemory, lookahead: int = 0) -> None:
        self._memory = memory
        self._lookahead = lookahead

    def refusal(self, seq: Sequence) -> str | None:
        """Return why ``seq`` can never be held, even alone; None where it can."""
        extra = self._lookahead
        seq.max_tokens += extra
        reason = self._memory.refusal(seq)
        seq.max_tokens -= extra
        return f"{reason}; {extra} of its positions are for drafts" if reason and extra else reason

    def reserve(self, seq: Sequence, tokens: int) -> bool:
        """Take in a sequence with room for all that it will ever hold; False without room."""
        seq.max_tokens += self._lookahead
        reserved = self._memory.reserve(seq, seq.final_kv_tokens)
        seq.max_tokens -= self._lookahead
        return reserved

    def fork(self, seq: Sequence, child: Sequence, tokens: int) -> bool:
        """Share the full blocks of ``seq`` with ``child``, which gets room for all the rest."""
        return self._memory.fork(seq, child, seq.final_kv_tokens + self._lookahead)


def peak_tokens(seqs: Iterable[Sequence]) -> int:
    """Return the positions that sequences hold at their peak, as far as their lengths are declared.

    The sequence with the fewest tokens left ends first. So memory peaks at the end of one of them,
    when it and all that have as many or more left are still there (LightLLM's admission).
    One that does not decode yet counts as if its prompt were computed and its next token out.
    """
    lengths = []
    for seq in seqs:
        generated = seq.generated_tokens + (seq.lockstep is None)
        lengths.append((seq.max_tokens - generated - 1, seq.prompt_tokens + generated))
    lengths.sort(reverse=True)
    held = peak = 0
    for place, (left, tokens) in enumerate(lengths, 1):
        held += tokens
        peak = max(peak, held + place * max(0, left))
    return peak


class ChunkRoom:
    """Prompts in progress take their blocks chunk by chunk (``prompt_blocks: chunk``)."""

    def __init__(self, memory: ChunkMemory) -> None:
        self._memory = memory

    def lacking(self, prompts: list[Sequence], left: int) -> list[Sequence]:
        """Give prompts room for their next ``left`` rows; return them from the first without it."""
        for place, seq in enumerate(prompts):
            tokens = min(seq.missing_tokens, left)
            if left > 0 and not self._memory.extend(seq, seq.base_computed_tokens + tokens):
                return prompts[place:]
            left -= tokens
        return []
