"""Slots for LoRA adapters: which requests may run beside each other, and what loading costs."""

from collections.abc import Callable, Iterable
from typing import ClassVar

from servetwin.policies.config import PolicyConfig
from servetwin.policies.queues.arrival_order import ArrivalOrder
from servetwin.policies.sequence import Sequence
from servetwin.workloads.native_class import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class AdapterSlots(ArrivalOrder):
    """First come, first served among requests whose adapters have a slot (vLLM's ``max_loras``).

    Running requests use at most ``adapter_slots`` adapters. One that finds no slot is overtaken by
    later ones that do. An adapter stays in its slot until another needs it: of those that nothing
    running uses, the one asked for least recently goes. Loading an adapter takes as long as
    ``adapter_tokens`` positions over the host link.
    """

    ranks_are_fixed: ClassVar[bool] = True

    def __init__(self, config: PolicyConfig, running: Callable[[], Iterable[Sequence]]) -> None:
        super().__init__()
        self._slots, self._tokens = config.adapter_slots, config.adapter_tokens
        self._running = running
        # The adapters in slots, the one asked for least recently first.
        self._resident: dict[str, None] = {}

    def push(self, seq: Sequence) -> None:
        """Add a sequence: as the first after preemption (vLLM), else in order of arrival."""
        self.size += 1
        waiting = self._arrived
        place = 0 if seq.preemptions else len(waiting)
        while place and waiting[place - 1].arrival_number > seq.arrival_number:
            place -= 1
        waiting.insert(place, seq)

    def discard(self, seq: Sequence) -> None:
        """Remove a sequence, which must wait."""
        self.size -= 1
        self._arrived.remove(seq)

    def head(self) -> Sequence | None:
        """Return the first sequence whose adapter has a slot, or gets one; None without any."""
        used: set[str] | None = None
        for seq in self._arrived:
            if seq.adapter is None:
                return seq
            if used is None:
                used = self._used()
            if seq.adapter in used or len(used) < self._slots:
                return seq
        return None

    def pop(self) -> Sequence:
        """Remove and return the sequence that is next; its adapter has a slot from now on."""
        seq = self.head()
        assert seq is not None, "a sequence is next"
        self.discard(seq)
        if seq.adapter is not None:
            seq.held.adapter_tokens = 0 if self._keep(seq.adapter) else self._tokens
        return seq

    def _keep(self, adapter: str) -> bool:
        """Give an adapter a slot; return whether it had one."""
        was_there = adapter in self._resident
        if was_there:
            del self._resident[adapter]
        elif len(self._resident) == self._slots:
            used = self._used()
            del self._resident[next(name for name in self._resident if name not in used)]
        self._resident[adapter] = None
        return was_there

    def _used(self) -> set[str]:
        """Return the adapters of all that runs."""
        return {seq.adapter for seq in self._running() if seq.adapter is not None}
