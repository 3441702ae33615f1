"""What the model computes in a step: rows of tokens, their positions, and the rows that sample."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from servetwin.engine.attention.step_attention import is_decode
from servetwin.engine.attention.without_cache import from_the_beginning
from servetwin.policies.batch import Batch, ScheduledSequence


class HasTokens(Protocol):
    """What is known of the tokens of a sequence."""

    token_ids: list[int]


@dataclass(frozen=True, slots=True)
class StepInput:
    """A batch as rows: first one per decode, then those of the chunks."""

    entries: list[ScheduledSequence]
    token_ids: list[int]
    positions: list[int]
    sampled_rows: list[int]
    """The last row of each entry that samples, in the order of the batch."""
    decodes: int
    """How many of the entries, the first ones, are decodes."""

    @classmethod
    def of(
        cls, batch: Batch, states: Mapping[str, HasTokens], kv_cache: bool = True
    ) -> "StepInput":
        """Return the rows of a batch; ``states`` has the tokens by output id.

        Without a KV cache every entry is a prompt from its first token on.
        """
        scheduled = batch.entries
        if kv_cache and not batch.chunks and not batch.drafted:
            return cls._of_decodes(scheduled, states)
        if not kv_cache:
            decodes, entries = 0, [from_the_beginning(entry) for entry in scheduled]
        else:
            is_last = is_chunk if batch.one_row_prefills else is_no_decode
            entries = sorted(scheduled, key=is_last)
            decodes = len(entries) - sum(map(is_last, entries))
        token_ids: list[int] = []
        positions: list[int] = []
        last_row: dict[str, int] = {}
        for entry in entries:
            start, name = entry.start, entry.seq.output_id
            if entry.tokens:
                token_ids += states[name].token_ids[start : start + entry.tokens]
            if entry.padding:
                token_ids += [0] * entry.padding
            positions += range(start, start + entry.rows)
            last_row[name] = len(token_ids) - entry.padding - 1
        sampled = [last_row[entry.seq.output_id] for entry in scheduled if entry.samples]
        return cls(entries, token_ids, positions, sampled, decodes)

    @classmethod
    def _of_decodes(
        cls, entries: list[ScheduledSequence], states: Mapping[str, HasTokens]
    ) -> "StepInput":
        """Return the rows of decodes that all yield a token: most steps are so."""
        positions = [start for _, start, _, _, _ in entries]
        token_ids = [states[seq.output_id].token_ids[start] for seq, start, _, _, _ in entries]
        rows = list(range(len(entries)))
        return cls(entries, token_ids, positions, rows, len(entries))


def is_no_decode(entry: ScheduledSequence) -> bool:
    """Return whether the entry is a chunk by its rows."""
    return not is_decode(entry)


def is_chunk(entry: ScheduledSequence) -> bool:
    """Return whether the entry is a chunk, as one row of a prompt is too."""
    return not is_decode(entry) or (entry.tokens > 0 and entry.seq.lockstep is None)
