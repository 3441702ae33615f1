"""What the policies keep in host memory, and the tensors there."""

from collections.abc import Sequence as Listed

import torch
from torch import Tensor

from servetwin.engine.kv.kv_store import KVStore
from servetwin.engine.kv.room import require_room
from servetwin.policies.batch import Batch, SwappedOut
from servetwin.policies.config import PolicyConfig
from servetwin.policies.kv.host_tier import HostMoves, KeptPart, Part
from servetwin.policies.kv.paged import PagedKV
from servetwin.policies.protocols import KVMemory
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
        # Blocks that were copied to the device so far.
        self.loaded_blocks = 0

    def before(self, batch: Batch) -> dict[str, Exception]:
        """Copy what prompts of the batch find here; return the sequences whose blocks are lost."""
        moves, failures = self._moves, dict[str, Exception]()
        for part, held in moves.computed.items():
            self._take(part, held)
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
        for part, held in self._moves.coming.items():
            if held.seq.request_id not in failed:
                self._take(part, held)
        self._moves.coming.clear()

    def _take(self, part: Part, kept: KeptPart) -> None:
        size = self._store.block_tokens
        slots = self._store.block_slots(kept.blocks, 0, (part[1] + 1) * size)
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


class SwapSpace:
    """Moves what a batch swaps, before the step.

    How much fits is the scheduler's business: it says with ``held.on_host`` what lies here.
    What leaves goes first, so that the blocks may be written by anything of the same step.
    """

    def __init__(self, store: KVStore) -> None:
        self._store = store
        self._kept: dict[Sequence, list[Tensor]] = {}

    def before(self, batch: Batch) -> dict[str, Exception]:
        """Copy to the host, then from it; return the sequences that were lost, by request id."""
        if not (self._kept or batch.swapped_out):
            return {}
        for seq in [s for s in self._kept if not s.held.on_host and s.lockstep is None]:
            del self._kept[seq]  # it was aborted, or back and preempted at once
        for swapped in batch.swapped_out:
            self._take(swapped)
        failures: dict[str, Exception] = {}
        for seq in batch.resumed:
            if seq.lockstep is not None:
                try:
                    self._put(seq)
                except Exception as error:
                    failures[seq.request_id] = error
        return failures

    def after(self, batch: Batch, failed: dict[str, Exception]) -> None:
        """Do nothing: a step changes nothing here."""

    def _take(self, swapped: SwappedOut) -> None:
        """Copy a sequence to the host, unless it was there and has not moved after all."""
        seq, blocks = swapped
        if seq in self._kept:
            return
        try:
            self._kept[seq] = self._store.take(
                self._store.block_slots(blocks, 0, seq.computed_tokens)
            )
        except Exception:
            return  # it is lost, and ends when it is to come back

    def _put(self, seq: Sequence) -> None:
        """Copy a sequence to its new blocks; those that it shares with others are filled."""
        rows = self._kept.pop(seq, None)
        if rows is None:
            raise EngineError("host memory had no room for its keys and values")
        slots = self._store.block_slots(seq.blocks, 0, seq.computed_tokens)
        shared = min(seq.held.keyed_blocks * self._store.block_tokens, len(slots))
        self._store.put(slots[shared:], [values[:, shared:] for values in rows])


def kv_movers(
    policies: PolicyConfig, memory: KVMemory, stores: Listed[KVStore]
) -> list[PrefixTier | SwapSpace]:
    """Return what copies keys and values between ``stores`` and host memory, as policies decide.

    The first store is the model's; a draft model has no prefixes on the host.
    """
    movers: list[PrefixTier | SwapSpace] = []
    token_bytes = sum(store.bytes // store.tokens for store in stores)
    swapped = policies.host_kv_tokens if policies.preemption == "swap" else 0
    tokens = swapped + policies.host_cache_tokens
    require_room("tokens in host memory", tokens, token_bytes, torch.device("cpu"))
    if policies.host_cache_tokens and isinstance(memory, PagedKV):
        moves = memory.watch_host()
        if moves is not None:
            movers.append(PrefixTier(stores[0], moves))
    if policies.preemption == "swap":
        movers += [SwapSpace(store) for store in stores]
    return movers
