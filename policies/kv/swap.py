"""Preempted decodes in host memory: swapped out and back, not recomputed (vLLM, SOSP 2023, 4.5)."""

from servetwin.policies.batch import Batch, SwappedOut
from servetwin.policies.sequence import Sequence


class Swap:
    """Host memory for ``capacity_tokens`` of preempted decodes, each kept as a whole or not."""

    def __init__(self, capacity_tokens: int) -> None:
        self._free_tokens = capacity_tokens

    def store(self, seq: Sequence, blocks: list[int], batch: Batch) -> bool:
        """Move a sequence out of ``blocks`` with this step; False, unchanged, without room."""
        if seq.computed_tokens > self._free_tokens:
            return False
        self._free_tokens -= seq.computed_tokens
        seq.held.on_host = True
        batch.swapped_tokens += seq.computed_tokens
        batch.swapped_out = [*batch.swapped_out, SwappedOut(seq, blocks)]
        return True

    def fetch(self, seq: Sequence) -> int:
        """Give back the room of a sequence that returns, or is aborted; return its tokens."""
        if not seq.held.on_host:
            return 0
        self._free_tokens += seq.computed_tokens
        seq.held.on_host = False
        return seq.computed_tokens
