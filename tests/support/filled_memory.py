"""An executor that knows which slot of the KV memory holds which token, and fails on a poison."""

from collections.abc import Callable, Mapping
from typing import Any

from servetwin.engine.sampling.token_state import NewToken
from servetwin.policies.batch import Batch, ScheduledSequence
from tests.support.fake_engine import POISON


class FilledMemory:
    """Fills the slots of a batch, or raises; asserts that what a sequence attends to is its own.

    A batch with a prompt that holds ``POISON``, or for which ``raises`` says so, raises before it
    fills anything.
    """

    def __init__(self, block_tokens: int, raises: Callable[[Batch], bool] = lambda _: False):
        self._block_tokens = block_tokens
        self._raises = raises
        self._slots: dict[int, int] = {}
        self.runs = 0

    def execute(self, batch: Batch, states: Mapping[str, Any]) -> dict[str, list[NewToken]]:
        """Return the last token plus one of every entry that samples."""
        self.runs += 1
        entries = [entry for entry in batch.entries if entry.tokens]
        tokens = {entry.seq.output_id: states[entry.seq.output_id].token_ids for entry in entries}
        if self._raises(batch) or any(POISON in ids for ids in tokens.values()):
            raise RuntimeError("poisoned")
        for entry in entries:
            ids = tokens[entry.seq.output_id]
            for position in range(entry.start, entry.start + entry.tokens):
                self._slots[self._slot(entry, position)] = ids[position]
        for entry in entries:
            for position in range(entry.start + entry.tokens):
                held = self._slots.get(self._slot(entry, position))
                assert held == tokens[entry.seq.output_id][position], "attends to garbage"
        return {
            name: [NewToken(_next(states[name].token_ids) + place)]
            for entry in entries
            if entry.yields_token
            for place, name in enumerate(entry.seq.output_ids())
        }

    def copy_blocks(self, copies: list[tuple[int, int]]) -> None:
        """Copy what is in the slots."""
        before, size = dict(self._slots), self._block_tokens
        for source, target in copies:
            for offset in range(size):
                self._slots[target * size + offset] = before.get(source * size + offset, -1)

    def _slot(self, entry: ScheduledSequence, position: int) -> int:
        place, offset = divmod(position, self._block_tokens)
        seq = entry.seq
        if seq.region_start >= 0:
            return seq.region_start + position
        return seq.blocks[place] * self._block_tokens + offset


def _next(token_ids: list[int]) -> int:
    return 300 + (sum(token_ids) + len(token_ids)) % 500
