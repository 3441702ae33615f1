"""Prefix sharing by block hash (vLLM, SOSP 2023): every block is remembered on its own.

A block that is full of prompt tokens is remembered by its chained key; the first block with a key
keeps it, and a sequence that computed it again has a private copy. A prefix may go while its
continuation stays, which then cannot be reached until the prefix has been computed again. Blocks
that no key names cannot be found, but stay until they are evicted.

The decisions are the same as with a flat table of one entry per block.
"""

from servetwin.policies.prefix.block_runs import BlockRuns, _Run
from servetwin.policies.sequence import Sequence


class BlockHashes(BlockRuns):
    """Keeps one block of each name. A run is one block where the order of eviction may part it."""

    def __init__(self, eviction: str) -> None:
        super().__init__(eviction, block_tokens=1)
        self._spans_keys = eviction in ("lru", "lfu")
        self._private: dict[Sequence, list[tuple[int, int, _Run]]] = {}
        """Places (start, end) of blocks that a run of others keeps, by sequence with a copy."""

    def held(self, seq: Sequence) -> int:
        """Return how many leading blocks ``share`` would share."""
        private = self._private.get(seq)
        return private[0][0] if private else seq.keyed_blocks

    def insert(self, seq: Sequence, blocks: int) -> None:
        """Remember the blocks among the first ``blocks`` whose key is new."""
        self._matched = None
        named, place = min(self._named_blocks(seq), blocks), seq.keyed_blocks
        if seq in self._private:
            self._cut_grown(seq, place)
        while place < named:
            end = named if self._spans_keys else place + 1
            copied = self._copied(seq, place, end, True)
            if copied and copied[0].start == place:
                end = self._keep_private(seq, copied[0], end)
            else:
                end = copied[0].start if copied else end
                self._keep_more(seq, place, end, True)
            place = seq.keyed_blocks = end
        if place < blocks:
            self._keep_more(seq, place, blocks, False)
            seq.keyed_blocks = blocks

    def release(self, seq: Sequence) -> tuple[int, list[int]]:
        """Let go, the tail first, so that prefixes outlive their continuations."""
        held, numbers = super().release(seq)
        for start, end, _ in self._private.pop(seq, ()):
            held -= end - start
            numbers += seq.blocks[start:end]
        return held, numbers

    def _named_blocks(self, seq: Sequence) -> int:
        return len(seq.block_keys) * seq.key_blocks

    def _match(self, seq: Sequence, limit: int) -> list[tuple[_Run, int]]:
        return super()._match(seq, min(limit, self._named_blocks(seq)))

    def _parts(self, seq: Sequence) -> list[_Run]:
        """Return the runs that a sequence holds; of its private blocks others hold theirs."""
        parts, private = super()._parts(seq), self._private.get(seq)
        if private is None:
            return parts
        return [run for run in parts if all(not s <= run.start < e for s, e, _ in private)]

    def _keep_more(self, seq: Sequence, start: int, end: int, is_named: bool) -> None:
        self.held_blocks += end - start
        self._keep(seq, start, end, is_named)

    def _may_grow(self, run: _Run, key: int, is_named: bool) -> bool:
        """Return whether blocks may follow in a run: it was used by their sequence alone."""
        if not is_named:
            return not run.keys and run.holders == 1
        return self._spans_keys and len(run.keys) > 0 and run.holders == run.uses == 1

    def _keep_private(self, seq: Sequence, run: _Run, end: int) -> int:
        """Note blocks that ``run`` keeps already; return the place of the first that it does not.

        Where the sequence may go on in the run, it is cut: a run is found by its first block.
        """
        start, stop = run.start, run.reach(seq.block_keys, min(run.end, end))
        if end < run.end:
            self._cut(run, end)
        self._private.setdefault(seq, []).append((start, stop, run))
        return stop

    def _cut_grown(self, seq: Sequence, place: int) -> None:
        """Cut the run that keeps the last private blocks at ``place``, where it has grown."""
        _, end, run = self._private[seq][-1]
        if end == place < run.end and (run.holders or run.ticket):
            self._cut(run, place)
