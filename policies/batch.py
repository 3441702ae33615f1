"""What one step computes, and its shape: all that a step-time model may know of it."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from policies.sequence import Sequence


@dataclass(slots=True)
class ScheduledSequence:
    """The share of one sequence in a step.

    Positions ``start .. start + tokens - 1`` are computed and stored. ``padding`` further rows
    are computed and thrown away (static batching). ``samples`` says whether the step yields a
    token of this sequence.
    """

    seq: Sequence
    start: int
    tokens: int
    samples: bool
    padding: int = 0

    @property
    def rows(self) -> int:
        """Rows that this entry adds to the matrices of the step."""
        return self.tokens + self.padding


@dataclass(frozen=True, slots=True)
class BatchShape:
    """The features of a batch that decide how long it takes.

    An entry of one row is a decode, whatever its sequence is doing; any other is a prefill chunk.
    """

    decode_sequences: int
    decode_context_tokens: int
    """Sum over the decodes of the positions they attend to, their own included."""
    decode_growing: int
    """Decodes whose context is one longer in the next step (all but the dead rows)."""
    prefill_chunks: tuple[tuple[int, int], ...]
    """(first position, rows) of each prefill chunk."""

    @property
    def sequences(self) -> int:
        """Sequences in the batch."""
        return self.decode_sequences + len(self.prefill_chunks)

    @property
    def rows(self) -> int:
        """Rows of the step's matrices: one per decode, and those of the chunks."""
        return self.decode_sequences + sum(rows for _, rows in self.prefill_chunks)


@dataclass(slots=True)
class Batch:
    """What one step computes; ``preempted`` lost their memory to make room for it."""

    entries: list[ScheduledSequence]
    preempted: list[Sequence] = field(default_factory=list)

    def shape(self) -> BatchShape:
        """The features of this batch that a step-time model may know."""
        return shape_of((entry.start, entry.tokens, entry.padding) for entry in self.entries)


def shape_of(entries: Iterable[tuple[int, int, int]]) -> BatchShape:
    """The shape of entries given as (first position, tokens, padding)."""
    decodes = context = growing = 0
    chunks = []
    for start, tokens, padding in entries:
        if tokens + padding == 1:
            decodes += 1
            context += start + 1
            growing += tokens
        else:
            chunks.append((start, tokens + padding))
    return BatchShape(decodes, context, growing, tuple(chunks))
