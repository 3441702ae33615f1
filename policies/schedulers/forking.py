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
        elif slots > 0 and _share(scheduler, seq, child):
            slots -= 1
        else:
            scheduler.queue.push(child)
    return ended


def _share(scheduler: SchedulerBase, seq: Sequence, child: Sequence) -> bool:
    """Let ``child`` decode with the memory of ``seq``; False where there is no more."""
    scheduler.intake.number(child)
    if not scheduler.admitting_memory.fork(seq, child, seq.computed_tokens):
        return False
    scheduler.decodes.join(child)
    return True
