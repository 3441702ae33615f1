"""What the model computes in a step: rows of tokens, their positions, and the rows that sample."""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Listed
from dataclasses import dataclass

from servetwin.engine.attention.step_attention import is_decode
from servetwin.engine.sampling.token_state import TokenState
from servetwin.policies.batch import Batch, ScheduledSequence


@dataclass(frozen=True, slots=True)
class Share:
    """The rows of one sequence in a pass; ``sampled`` are those whose logits are wanted."""

    entry: ScheduledSequence
    token_ids: list[int]
    positions: range | list[int]
    sampled: range | list[int]
    prompt_logprobs: int = 0
    """How many of the sampled rows, the first ones, tell of the next token of a prompt."""

    @classmethod
    def of(cls, entry: ScheduledSequence, state: TokenState | None) -> "Share":
        """Return the rows of a scheduled sequence; one of padding alone needs no ``state``."""
        start, tokens = entry.start, entry.tokens
        ids = state.token_ids[start : start + tokens] if state and tokens else []
        wanted = max(0, min(tokens, entry.seq.prompt_tokens - 1 - start))
        if not (state and state.wants_prompt_logprobs(entry.seq.prompt_tokens)):
            wanted = 0
        last = range(max(tokens, 1) - 1, max(tokens, 1)) if entry.yields_token else range(0)
        positions = range(start, start + entry.rows)
        sampled = [*range(wanted), *last] if wanted else last
        return cls(entry, ids + [0] * entry.padding, positions, sampled, wanted)

    def single_rows(self) -> list["Share"]:
        """Return each row as a decode of its own: of a chain, each sees all before it."""
        seq, start, tokens, yields_token, _ = self.entry
        return [
            Share(
                ScheduledSequence(seq, start + row, 1, yields_token),
                [self.token_ids[row]],
                [self.positions[row]],
                range(int(row in self.sampled)),
            )
            for row in range(tokens)
        ]


@dataclass(frozen=True, slots=True)
class StepInput:
    """A batch as rows: first one per decode, then those of the chunks."""

    entries: list[ScheduledSequence]
    token_ids: list[int]
    positions: list[int]
    sampled_rows: list[int]
    """The rows whose logits are wanted, in the order of the batch."""
    decodes: int
    """How many of the entries, the first ones, are decodes."""
    shares: Listed[Share] = ()
    """The rows of each sequence, in the order of the batch; none for decodes alone."""

    @classmethod
    def of(
        cls, batch: Batch, states: Mapping[str, TokenState], kv_cache: bool = True
    ) -> "StepInput":
        """Return the rows of a batch; ``states`` has the tokens by output id.

        Without a KV cache every entry is a prompt from its first token on.
        """
        entries = batch.entries
        if kv_cache and not batch.chunks and not batch.drafted:
            return cls._of_decodes(entries, states)
        decodes = _is_running_decode if batch.one_row_prefills else is_decode
        if not kv_cache:
            entries, decodes = [from_the_beginning(entry) for entry in entries], _is_none
        shares = [Share.of(entry, states.get(entry.seq.output_id)) for entry in entries]
        return cls.of_shares(shares, decodes)

    @classmethod
    def of_shares(
        cls, shares: list[Share], decodes: Callable[[ScheduledSequence], bool] = is_decode
    ) -> "StepInput":
        """Return the rows of all shares; ``decodes`` says which of them attend as decodes."""
        order = sorted(range(len(shares)), key=lambda place: not decodes(shares[place].entry))
        token_ids: list[int] = []
        positions: list[int] = []
        first_row = [0] * len(shares)
        for place in order:
            first_row[place] = len(token_ids)
            token_ids += shares[place].token_ids
            positions += shares[place].positions
        sampled = [
            first + row
            for first, share in zip(first_row, shares, strict=True)
            for row in share.sampled
        ]
        entries = [shares[place].entry for place in order]
        return cls(entries, token_ids, positions, sampled, sum(map(decodes, entries)), shares)

    @classmethod
    def _of_decodes(
        cls, entries: list[ScheduledSequence], states: Mapping[str, TokenState]
    ) -> "StepInput":
        """Return the rows of decodes that all yield a token: most steps are so."""
        positions = [start for _, start, _, _, _ in entries]
        token_ids = [states[seq.output_id].token_ids[start] for seq, start, _, _, _ in entries]
        rows = list(range(len(entries)))
        return cls(entries, token_ids, positions, rows, len(entries))


def _is_running_decode(entry: ScheduledSequence) -> bool:
    """Return whether the entry is a decode, and not one row of a prompt."""
    return is_decode(entry) and not (entry.tokens > 0 and entry.seq.lockstep is None)


def _is_none(entry: ScheduledSequence) -> bool:
    """Return that no entry is a decode."""
    del entry
    return False


def from_the_beginning(entry: ScheduledSequence) -> ScheduledSequence:
    """Return the entry with all before it computed again; of one that has ended, as padding."""
    start, tokens = entry.start, entry.tokens
    if tokens:
        return entry._replace(start=0, tokens=start + tokens)
    return entry._replace(start=0, padding=start + entry.padding)
