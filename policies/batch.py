"""What one step computes, and its shape: all that a step-time model may know of it."""

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Listed
from typing import NamedTuple

from servetwin.policies.lockstep import Lockstep
from servetwin.policies.sequence import Sequence

# Makes a named tuple at half the cost of calling its class.
_new = tuple.__new__


class ScheduledSequence(NamedTuple):
    """The share of one sequence in a step.

    Positions ``start .. start + tokens - 1`` are computed and stored. ``padding`` further rows
    are computed and thrown away (static batching), or verify drafts of a decode that has fewer
    rows than the others (``Batch.verify_cut``). ``yields_token`` says whether the step yields a
    token of this sequence, or ends a prompt that yields none (``Batch.prompt_token``).
    """

    seq: Sequence
    start: int
    tokens: int
    yields_token: bool
    padding: int = 0

    @property
    def rows(self) -> int:
        """Rows that this entry adds to the matrices of the step."""
        return self.tokens + self.padding


class SwappedOut(NamedTuple):
    """A sequence whose keys and values leave the device, and the blocks in which they still lie.

    The blocks are those of the table that an executor needed; they may belong to others already.
    """

    seq: Sequence
    blocks: list[int]


class BatchShape(NamedTuple):
    """The features of a batch that decide how long it takes.

    An entry of one row is a decode, whatever its sequence is doing, any other is a prefill chunk;
    with ``Batch.one_row_prefills``, one row of a prompt is a prefill chunk too.
    """

    decode_sequences: int
    decode_context_tokens: int
    """Sum over the decodes of the positions they attend to, their own included."""
    decode_growing: int
    """Decodes whose context is one longer in the next step (all but the dead rows)."""
    prefill_chunks: tuple[tuple[int, int], ...] = ()
    """(first position, rows) of each prefill chunk."""
    swapped_tokens: int = 0
    """KV positions that move between device and host before the step."""
    drafted_chunks: int = 0
    """How many of the chunks, the first ones, verify drafts of a sequence that decodes."""
    decode_contexts: tuple[int, ...] = ()
    """The positions that each decode attends to, for a step-time model that ``wants_contexts``."""
    longest_context: int = 0
    """The most positions that a growing decode attends to, for a model that ``wants_longest``."""

    @property
    def sequences(self) -> int:
        """Sequences in the batch."""
        return self.decode_sequences + len(self.prefill_chunks)

    @property
    def rows(self) -> int:
        """Rows of the step's matrices: one per decode, and the rows of the chunks."""
        rows = self.decode_sequences
        for _, chunk_rows in self.prefill_chunks:
            rows += chunk_rows
        return rows


# (decodes, their context, growing ones, prefill chunks, rows, prefill pairs, prefill starts).
Totals = tuple[int, int, int, int, int, int, int]


class Batch:
    """What one step computes.

    The members of ``lockstep`` decode one token each; ``chunks`` are the parts of prompts, and
    the rows of finished members that a static batch drags along. ``preempted`` lost their device
    memory to make room, ``resumed`` had theirs elsewhere; of ``swapped_tokens`` positions the keys
    and values move over the host link before the step. ``swapped_out`` says which of the preempted
    go to the host; what is resumed, or loaded for a prompt, is found by its sequence.

    Where decodes verify drafts, ``lockstep`` is a ``policies.drafted_decodes.DraftedDecodes`` and
    ``drafted`` the number of its members: of the rows that each computes, some become tokens.
    """

    __slots__ = (
        "chunks", "lockstep", "one_row_prefills", "preempted", "prompt_token", "resumed",
        "swapped_out", "swapped_tokens",
    )  # fmt: skip

    def __init__(
        self,
        chunks: Listed[ScheduledSequence] = (),
        lockstep: Lockstep | None = None,
        one_row_prefills: bool = False,
    ) -> None:
        self.chunks = chunks
        self.lockstep = lockstep
        self.preempted: Listed[Sequence] = ()
        self.resumed: Listed[Sequence] = ()
        self.swapped_out: Listed[SwappedOut] = ()
        self.swapped_tokens = 0
        # Whether one row of a prompt is a prefill chunk, and not a decode.
        self.one_row_prefills = one_row_prefills
        # Whether the last chunk of a prompt yields a token.
        self.prompt_token = lockstep is None or lockstep.prompt_token

    @property
    def drafted(self) -> int:
        """Decodes that verify drafts."""
        group = self.lockstep
        return group.size if group is not None and group.rows > 1 else 0

    @property
    def entries(self) -> list[ScheduledSequence]:
        """Every sequence of the step: decodes in the order of joining, then chunks."""
        group = self.lockstep
        if group is None:
            return list(self.chunks)
        decodes = [ScheduledSequence(s, s.computed_tokens, group.rows, True) for s in group]
        return [*decodes, *self.chunks]

    @property
    def sampled(self) -> list[Sequence]:
        """The sequences of entries that sample, in the order of the entries."""
        seqs = [] if self.lockstep is None else list(self.lockstep)
        if self.chunks:
            seqs += [entry.seq for entry in self.chunks if entry.yields_token]
        return seqs

    def __len__(self) -> int:
        """Sequences in the step."""
        return len(self.chunks) + (self.lockstep.size if self.lockstep is not None else 0)

    def add_chunk(self, seq: Sequence, limit: int) -> int:
        """Add the next positions of a prompt, at most ``limit``; return how many they are.

        The last of them yields a token.
        """
        start = seq.base_computed_tokens
        total = seq.prompt_tokens + seq.base_generated_tokens
        tokens = total - start
        if tokens > limit:
            tokens = limit
        chunk = _new(ScheduledSequence, (seq, start, tokens, start + tokens == total, 0))
        self.chunks = (*self.chunks, chunk) if self.chunks else (chunk,)
        return tokens

    def verify_cut(self, most: int, passes: Callable[[Sequence], int]) -> None:
        """Let decodes that verify fewer than ``most`` drafts in this step keep what comes out.

        ``passes`` says how many tokens would come out of all rows of a decode.
        """
        for place, (seq, start, _, yields_token, drafts) in enumerate(self.chunks):
            if yields_token and 0 < drafts < most:
                kept = min(passes(seq), 1 + drafts, seq.max_tokens - seq.base_generated_tokens)
                chunk = ScheduledSequence(seq, start, kept, True, 1 + drafts - kept)
                self.chunks = (*self.chunks[:place], chunk, *self.chunks[place + 1 :])

    def shape(self) -> BatchShape:
        """Return the features of this batch that a step-time model may know."""
        group, swapped = self.lockstep, self.swapped_tokens
        if group is None:
            return self._shape_with(0, 0)
        if self.drafted:
            passes = tuple((seq.computed_tokens, group.rows) for seq in group)
            beside = self.beside_drafts()
            return beside._replace(prefill_chunks=passes + beside.prefill_chunks)
        decodes = group.size
        context = group.context_tokens + decodes
        if not self.chunks:
            return _new(BatchShape, (decodes, context, decodes, (), swapped, 0, (), 0))
        return self._shape_with(decodes, context)

    def beside_drafts(self) -> BatchShape:
        """Return the shape without the ``drafted`` chunks themselves."""
        return self._shape_with(0, 0)

    def _shape_with(self, decodes: int, context: int) -> BatchShape:
        """Return the shape of the chunks, and of so many decodes of the lockstep."""
        growing = decodes
        prefills: tuple[tuple[int, int], ...] = ()
        for _, start, tokens, _, padding in self.chunks:
            rows = tokens + padding
            if rows == 1 and not (tokens and self.one_row_prefills):
                decodes += 1
                context += start + 1
                growing += tokens
            else:
                prefills += ((start, rows),)
        swapped, drafted = self.swapped_tokens, self.drafted
        return _new(BatchShape, (decodes, context, growing, prefills, swapped, drafted, (), 0))

    def totals(self) -> Totals:
        """Return the sums of ``shape``; verified drafts count as decodes, with all their rows.

        The context of decodes includes their own positions; pairs are of queries and keys.
        """
        group = self.lockstep
        decodes = rows = growing = context = prefills = pairs = starts = 0
        if group is not None:
            decodes = group.size
            rows = decodes * group.rows
            context = group.context_tokens + rows
            if group.rows == 1:
                growing = decodes
            else:
                pairs = group.verified_pairs()
        for _, start, tokens, _, padding in self.chunks:
            computed = tokens + padding
            rows += computed
            if computed == 1 and not (tokens and self.one_row_prefills):
                decodes += 1
                context += start + 1
                growing += tokens
                continue
            pairs += computed * start + (computed * (computed + 1) >> 1)
            prefills += 1
            starts += start
        return decodes, context, growing, prefills, rows, pairs, starts


def shape_of(entries: Iterable[tuple[int, int, int]]) -> BatchShape:
    """Return the shape of entries given as (first position, tokens, padding)."""
    anonymous = Sequence("", 0.0, 0, 0)
    chunks = [
        ScheduledSequence(anonymous, start, n, True, padding) for start, n, padding in entries
    ]
    return Batch(chunks).shape()
