"""Several answers to one prompt: the scheduler forks them, and shared blocks are copied once."""

from servetwin.engine.core.step_isolation import BlockCopies
from servetwin.policies.batch import Batch
from servetwin.policies.protocols import Scheduler
from servetwin.policies.schedulers.continuous import ContinuousBatching
from servetwin.policies.sequence import Sequence


def forks_samples(scheduler: Scheduler) -> bool:
    """Return whether a scheduler makes one sequence into several once its prompt is computed.

    With any other, and with ``queue_samples``, each sample is a request of its own: static batching
    has one row for each, and drafts are made for single sequences.
    """
    if not isinstance(scheduler, ContinuousBatching):
        return False
    return not (scheduler.config.queue_samples or scheduler.config.draft_rows)


class Forks:
    """The prompts that a step completes and that several samples share from then on."""

    def __init__(self, batch: Batch) -> None:
        """Keep the block tables of the prompts; a sequence that ends with the step loses its own.

        To be called before the scheduler completes the step.
        """
        self._parents = [
            (entry.seq, [list(table) for table in _tables(entry.seq)])
            for entry in batch.chunks
            if entry.yields_token and entry.seq.begins_samples
        ]

    def copies(self, scheduler: Scheduler) -> BlockCopies:
        """Return which blocks the new samples have as copies, once the step is completed.

        All sources are to be read before a target is written.
        """
        tables = {seq.siblings: held for seq, held in self._parents if seq.siblings is not None}
        if not tables:
            return []
        copies: BlockCopies = []
        for child in scheduler.holders():
            if child.siblings in tables and child is not child.siblings.first:
                copies += _copied(tables[child.siblings], child, scheduler)
        return copies


def _tables(seq: Sequence) -> list[list[int]]:
    return [seq.blocks, *seq.states]


def _copied(tables: list[list[int]], child: Sequence, scheduler: Scheduler) -> BlockCopies:
    scheduler.memory.table(child, child.computed_tokens)
    pairs = [
        pair
        for held, own in zip(tables, _tables(child), strict=True)
        for pair in zip(held, own, strict=False)
    ]
    return [pair for pair in pairs if pair[0] != pair[1] and min(pair) >= 0]
