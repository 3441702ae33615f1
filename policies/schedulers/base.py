"""What every scheduler here has: a waiting queue, prompts in progress, and decodes in lockstep."""

from collections.abc import Iterable
from typing import ClassVar

from servetwin.policies.config import PolicyConfig
from servetwin.policies.lockstep import Lockstep
from servetwin.policies.protocols import KVMemory, Load
from servetwin.policies.schedulers.queueing import AdmissionQueue, WaitingQueue, queue_in_order
from servetwin.policies.sequence import Sequence
from servetwin.workloads.native_class import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class SchedulerBase(AdmissionQueue):
    """The state of a scheduler, and what may be read from it.

    ``has_token_budget`` says that ``token_budget`` bounds the rows of each step.
    A sequence waits in ``_waiting``; once admitted it is in ``_prefilling``, in order of admission,
    until its prompt is computed; with its first token it joins ``_decodes``.
    """

    has_token_budget: ClassVar[bool] = True

    def __init__(self, memory: KVMemory, config: PolicyConfig) -> None:
        self.memory = memory  # which ``build_queue`` may read
        super().__init__(memory, config, self.build_queue(config))
        self._max_seqs = config.max_seqs
        self._one_row_prefills = config.one_row_chunk == "prefill"
        self._prefilling: list[Sequence] = []
        self._decodes = Lockstep(memory.block_tokens)

    def build_queue(self, config: PolicyConfig) -> WaitingQueue:
        """Return the empty waiting queue; a subclass may have another order."""
        return queue_in_order(self.memory, config)

    def load(self) -> Load:
        """Return (running sequences, waiting sequences, free KV tokens)."""
        running = self._decodes.size + len(self._prefilling)
        return running, self._waiting.size, self.memory.free_tokens()

    def holders(self) -> list[Sequence]:
        """Return all sequences that hold KV memory, in order of admission."""
        return [*self._decodes, *self._prefilling]

    def waiting(self) -> Iterable[Sequence]:
        """Return the waiting sequences, in no order."""
        return iter(self._waiting)

    def wake_s(self) -> float | None:
        """Return None: what can run runs at once."""
        return None

    def _has_slot(self) -> bool:
        return self._decodes.size + len(self._prefilling) < self._max_seqs
