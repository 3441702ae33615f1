"""Keys and values of preempted sequences in host memory (``preemption: swap``)."""

from torch import Tensor

from servetwin.engine.kv.kv_store import KVStore
from servetwin.policies.batch import Batch, SwappedOut
from servetwin.policies.sequence import Sequence
from servetwin.workloads.errors import EngineError


class SwapSpace:
    """Moves what a batch swaps, before the step.

    How much fits is the scheduler's business: it says with ``Sequence.on_host`` what lies here.
    What leaves goes first, so that the blocks may be written by anything of the same step.
    """

    def __init__(self, store: KVStore) -> None:
        self._store = store
        self._kept: dict[Sequence, list[Tensor]] = {}

    @property
    def tokens(self) -> int:
        """Positions whose keys and values lie here."""
        return sum(rows[0].shape[1] for rows in self._kept.values())

    def before(self, batch: Batch) -> dict[str, Exception]:
        """Copy to the host, then from it; return the sequences that were lost, by request id."""
        if not (self._kept or batch.swapped_out):
            return {}
        for seq in [s for s in self._kept if not s.on_host and s.lockstep is None]:
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
            self._kept[seq] = self._store.take(self._store.held(blocks, seq.computed_tokens))
        except Exception:
            return  # it is lost, and ends when it is to come back

    def _put(self, seq: Sequence) -> None:
        """Copy a sequence to its new blocks; those that it shares with others are filled."""
        rows = self._kept.pop(seq, None)
        if rows is None:
            raise EngineError("host memory had no room for its keys and values")
        slots = self._store.held(seq.blocks, seq.computed_tokens)
        shared = min(seq.keyed_blocks * self._store.block_tokens, len(slots))
        self._store.put(slots[shared:], [kept[:, shared:] for kept in rows])
