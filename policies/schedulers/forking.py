"""Several answers to one prompt: sequences that begin where its computation ends."""

from servetwin.policies.lockstep import Lockstep
from servetwin.policies.protocols import AdmittingMemory
from servetwin.policies.queues.intake import Intake
from servetwin.policies.sequence import Sequence, Siblings


class Forking:
    """Begins the further answers of requests."""

    def __init__(self, memory: AdmittingMemory, decodes: Lockstep, intake: Intake) -> None:
        self._memory = memory
        self._decodes = decodes
        self._intake = intake

    def begin(self, seq: Sequence, slots: int) -> list[Sequence]:
        """Begin the other samples of a computed prompt; return those that end at once.

        A sample for which there is no slot (of ``slots`` free ones), or no memory, waits, and
        computes its prompt anew.
        """
        seq.siblings = Siblings(seq)
        ended = []
        for sample in range(1, seq.samples):
            child = seq.fork(sample, seq.arrival_number + sample)
            if child.finished:
                ended.append(child)
            elif self.share(seq, child, slots > 0):
                slots -= 1
        return ended

    def share(self, seq: Sequence, child: Sequence, has_slot: bool = True) -> bool:
        """Let ``child`` decode with the memory of ``seq``, or wait where it cannot."""
        if has_slot:
            self._intake.number(child)
            if self._memory.fork(seq, child, seq.computed_tokens):
                self._decodes.join(child)
                return True
        self._intake.queue.push(child)
        return False
