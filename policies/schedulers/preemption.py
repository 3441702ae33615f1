"""Decodes take memory as they grow; when it runs out, a running sequence loses its own.

The victim is recomputed later, or swapped to host memory and back (vLLM, SOSP 2023, section 4.5).
"""

from collections.abc import Reversible

from servetwin.policies.batch import Batch, SwappedOut
from servetwin.policies.config import PolicyConfig, Victim
from servetwin.policies.protocols import KVMemory
from servetwin.policies.schedulers.base import SchedulerBase
from servetwin.policies.sequence import Sequence
from servetwin.workloads.native_class import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class PreemptiveScheduler(SchedulerBase):
    """Preempts running sequences and resumes them.

    ``_reserves_all`` says that admission reserves the whole length of a sequence, ``_grows`` that
    its decode takes block after block instead.
    """

    def __init__(self, memory: KVMemory, config: PolicyConfig) -> None:
        super().__init__(memory, config)
        self._reserves_all = config.admission == "full"
        self._grows = not self._reserves_all and memory.layout == "paged"
        self._victim = config.victim
        self._rules = config
        """The settings that are rarely read; a scheduler is to have few attributes."""
        self._host = HostMemory(config.host_kv_tokens) if config.preemption == "swap" else None

    def abort(self, request_id: str) -> Sequence | None:
        """Forget a request and free what it holds; None when it is not here."""
        found = None
        while seq := self._waiting.remove(request_id):
            self._forget_host(seq)
            found = seq
        for seq in self.holders():
            if seq.request_id == request_id:
                self._take_out(seq)
                found = seq
        return found

    def _make_room(self, batch: Batch) -> None:
        """Preempt until the other decodes can grow by one position each."""
        decodes = self._decodes
        grown = False
        while not grown:
            self._preempt(choose_victim(self._victim, decodes, self._prefilling), batch)
            grown = not decodes.size or self.memory.grow(decodes, 1)

    def _preempt(self, seq: Sequence, batch: Batch) -> None:
        decoding, blocks = self._is_decode(seq), seq.blocks
        seq.on_host = seq in batch.resumed  # they have not come yet, so no cache has them
        self._take_out(seq)
        seq.on_host = False
        seq.preemptions += 1
        batch.preempted = [*batch.preempted, seq]
        if self._host and decoding and self._host.store(seq):
            batch.swapped_tokens += seq.computed_tokens
            batch.swapped_out = [*batch.swapped_out, SwappedOut(seq, blocks)]
        else:
            if self._rules.recompute == "computed" and not decoding:
                seq.shorten_prompt()
            seq.computed_tokens = 0
        self._waiting.push(seq)

    def _is_decode(self, seq: Sequence) -> bool:
        """Return whether a running sequence has computed all but its last token."""
        return seq.lockstep is not None

    def _resume(self, seq: Sequence, batch: Batch) -> bool:
        """Admit a sequence whose keys and values lie elsewhere; it decodes at once."""
        granted = batch.lockstep is not None  # the decodes have grown for this step already
        needed = seq.final_kv_tokens if self._reserves_all else seq.computed_tokens + granted
        if not self.memory.reserve(seq, needed):
            return False
        self._waiting.pop()
        if seq.on_host and self._host:
            self._host.fetch(seq)
            batch.swapped_tokens += seq.computed_tokens
        batch.resumed = [*batch.resumed, seq]
        if granted and self._grows:
            self._decodes.granted_step = self._decodes.steps + 1
        self._decodes.join(seq)
        return True

    def _take_out(self, seq: Sequence) -> None:
        if seq.lockstep is not None:
            self._decodes.leave(seq)
        else:
            self._prefilling.remove(seq)
        self.memory.release(seq)

    def _forget_host(self, seq: Sequence) -> None:
        if seq.on_host and self._host:
            self._host.fetch(seq)


def choose_victim(
    victim: Victim, decodes: Reversible[Sequence], prefilling: list[Sequence]
) -> Sequence:
    """Return the sequence to preempt; of equals the newest. At least one sequence must run."""
    if victim == "newest":
        return prefilling[-1] if prefilling else next(reversed(decodes))
    newest_first = [*reversed(prefilling), *reversed(decodes)]
    if victim == "lowest-priority":
        return min(newest_first, key=lambda seq: seq.priority)
    return min(newest_first, key=lambda seq: seq.generated_tokens)


class HostMemory:
    """Room for ``capacity_tokens`` of swapped sequences, each kept as a whole or not at all."""

    def __init__(self, capacity_tokens: int) -> None:
        self._free_tokens = capacity_tokens

    def store(self, seq: Sequence) -> bool:
        """Keep the computed tokens of a sequence; False, and nothing changed, without room."""
        if seq.computed_tokens > self._free_tokens:
            return False
        self._free_tokens -= seq.computed_tokens
        seq.on_host = True
        return True

    def fetch(self, seq: Sequence) -> None:
        """Give back the room of a sequence that is on the device again, or has ended."""
        self._free_tokens += seq.computed_tokens
        seq.on_host = False
