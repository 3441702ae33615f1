"""Several answers to one prompt: sequences that begin where its computation ends."""

from servetwin.policies.schedulers.base import SchedulerBase
from servetwin.policies.sequence import Sequence, Siblings


def begin_samples(scheduler: SchedulerBase, seq: Sequence, slots: int) -> list[Sequence]:
    """Begin the other samples of a computed prompt; return those that end at once.

    A sample for which there is no slot (of ``slots`` free ones), or no memory, waits, and computes
    its prompt anew.
    """
    seq.siblings = Siblings(seq)
    ended = []
    for sample in range(1, seq.samples):
        child = seq.fork(sample, seq.arrival_number + sample)
        if child.finished:
            ended.append(child)
        elif share(scheduler, seq, child, slots > 0):
            slots -= 1
    return ended


def share(scheduler: SchedulerBase, seq: Sequence, child: Sequence, has_slot: bool = True) -> bool:
    """Let ``child`` decode with the memory of ``seq``, or wait where it cannot."""
    if has_slot:
        scheduler.intake.number(child)
        if scheduler.admitting_memory.fork(seq, child, seq.computed_tokens):
            scheduler.decodes.join(child)
            return True
    scheduler.queue.push(child)
    return False
