"""Keys and values of prompt blocks in host memory, beside the prefix cache of the device."""

from torch import Tensor

from servetwin.engine.kv.kv_store import KVStore
from servetwin.policies.batch import Batch
from servetwin.policies.kv.host_tier import HostMoves, KeptPart, Part
from servetwin.policies.sequence import Sequence
from servetwin.workloads.errors import EngineError


class PrefixTier:
    """Copies what the policy notes in ``moves``: which blocks it keeps, loads and drops.

    Prompts of an engine have a key for every block, so a part is a block.
    """

    def __init__(self, store: KVStore, moves: HostMoves) -> None:
        self._store = store
        self._moves = moves
        self._kept: dict[Part, list[Tensor]] = {}
        self.loaded_blocks = 0
        """Blocks that were copied to the device so far."""

    @property
    def blocks(self) -> int:
        """Blocks that lie here."""
        return len(self._kept)

    def before(self, batch: Batch) -> dict[str, Exception]:
        """Copy what prompts of the batch find here; return the sequences whose blocks are lost."""
        moves, failures = self._moves, dict[str, Exception]()
        for part, kept in moves.computed.items():
            self._take(part, kept)
        if moves.loads:
            running = {entry.seq for entry in batch.entries}.difference(batch.resumed)
            for seq, (start, end) in moves.loads.items():
                if seq in running:
                    try:
                        self._put(seq, start, end)
                    except Exception as error:
                        failures[seq.request_id] = error
        for part in moves.dropped:
            self._kept.pop(part, None)
        moves.computed.clear()
        moves.loads.clear()
        moves.dropped.clear()
        return failures

    def after(self, batch: Batch, failed: dict[str, Exception]) -> None:
        """Copy the blocks that the step has filled."""
        for part, kept in self._moves.coming.items():
            if kept.seq.request_id not in failed:
                self._take(part, kept)
        self._moves.coming.clear()

    def _take(self, part: Part, kept: KeptPart) -> None:
        size = self._store.block_tokens
        slots = self._store.held(kept.blocks, (part[1] + 1) * size)
        try:
            self._kept[part] = self._store.take(slots[-size:])
        except Exception:
            self._kept.pop(part, None)  # a sequence that is to load it fails

    def _put(self, seq: Sequence, start: int, end: int) -> None:
        for place in range(start, end):
            part = seq.key_of_block(place)
            rows = self._kept.get(part) if part is not None else None
            if rows is None:
                raise EngineError("no room in host memory for a part of its prompt's prefix")
            size = self._store.block_tokens
            self._store.put(self._store.slots(seq, place * size, (place + 1) * size), rows)
            self.loaded_blocks += 1
