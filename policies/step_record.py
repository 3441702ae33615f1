"""One row of a step log: what a step computed and decided. Engine and simulator write the same."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise, zip_longest
from typing import Any

from servetwin.policies.batch import Batch, BatchShape, shape_of
from servetwin.policies.protocols import Scheduler

# Columns that a row may lack: no drafts, nothing moved, no beat, no time lost.
OPTIONAL_FIELDS = ("drafts", "swapped_tokens", "beat_s", "lost_s", "switches")


@dataclass(frozen=True, slots=True)
class StepRecord:
    """A step as it was decided, before it ran.

    ``entries`` are (request id, first position, tokens, padding) in batch order; ``now_s`` is the
    time given to the scheduler; ``duration_s`` the time until the step's tokens were known.
    ``hits`` are (request id, cached tokens) of sequences admitted now, ``free_tokens`` what
    was left once the batch had its room. ``idle_before`` says that the server slept before it.
    ``drafts`` are (output id, drafted tokens, accepted ones) of an engine's passes that verify
    drafts, the first entries; one token more than the accepted came out, if so many were asked.
    ``swapped_tokens`` positions moved over the host link before the step. ``beat_s`` is how long
    the reference beat took that ran between the step before and this one; 0 where none did;
    ``lost_s`` the time since the step before that other programs took from it, ``switches`` how
    often they took the core; 0 where it slept.
    """

    step: int
    now_s: float
    duration_s: float
    idle_before: bool
    entries: list[tuple[str, int, int, int]]
    preempted: list[str]
    hits: list[tuple[str, int]]
    free_tokens: int
    running: int
    waiting: int
    drafts: list[tuple[str, int, int]] = field(default_factory=list)
    swapped_tokens: int = 0
    beat_s: float = 0.0
    lost_s: float = 0.0
    switches: int = 0

    def shape(self) -> BatchShape:
        """The features of the batch; which of its chunks verified drafts only an engine says."""
        entries = ((start, tokens, padding) for _, start, tokens, padding in self.entries)
        return shape_of(entries)._replace(
            drafted_chunks=len(self.drafts), swapped_tokens=self.swapped_tokens
        )

    def decisions(self) -> tuple[object, ...]:
        """All that the policies decided: equal for equal runs, whatever the clock said."""
        entries = tuple(tuple(entry) for entry in self.entries)
        hits = tuple(tuple(hit) for hit in self.hits)
        return entries, tuple(self.preempted), hits, self.free_tokens, self.swapped_tokens

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> "StepRecord":
        """Return the record that ``as_row`` wrote; raise ``KeyError`` for a column it lacks."""
        values = {f.name: row[f.name] for f in fields(cls) if f.name not in OPTIONAL_FIELDS}
        values |= {name: row[name] for name in OPTIONAL_FIELDS if name in row}
        for name in ("entries", "hits", "drafts"):
            values[name] = [tuple(cells) for cells in values.get(name, ())]
        return cls(**values)

    def as_row(self) -> dict[str, Any]:
        """The record by column, for JSON; optional ones only where there is something to say."""
        row = {name: getattr(self, name) for name in self.__slots__}
        for name in OPTIONAL_FIELDS:
            if not row[name]:
                del row[name]
        return row


def timed_steps(steps: Sequence[StepRecord]) -> Iterator[tuple[StepRecord, float, int]]:
    """Yield each step, the seconds that the engine took for it, and how often it lost its core.

    A step lasts until the next was decided. A beat between two steps is part of neither, nor is the
    time that other programs took. The last step before the server slept has no such end, and is
    left out.
    """
    for this, after in pairwise(steps):
        if not after.idle_before:
            took_s = after.now_s - this.now_s - after.beat_s - after.lost_s
            yield this, took_s, after.switches


def gaps_s(steps: Sequence[StepRecord]) -> Iterator[float]:
    """Yield the seconds from each step to the next, or to the sleep of the server, or to the end.

    A beat counts to the step before it, as does the time that other programs took.
    """
    for this, after in zip_longest(steps, steps[1:]):
        yield this.duration_s if after is None or after.idle_before else after.now_s - this.now_s


def record_step(
    step: int, batch: Batch, scheduler: Scheduler, now_s: float, duration_s: float,
    idle_before: bool, drafts: Sequence[tuple[str, int, int]] = (),
) -> StepRecord:  # fmt: skip
    """The log row of ``batch``; call it before ``scheduler.complete``."""
    running, waiting, free_tokens = scheduler.load()
    entries = [(e.seq.request_id, e.start, e.tokens, e.padding) for e in batch.entries]
    preempted = [seq.request_id for seq in batch.preempted]
    hits = [
        (e.seq.request_id, e.start)
        for e in batch.chunks
        if e.start and not e.seq.generated_tokens and e.start == e.seq.cached_tokens
    ]
    decided = (entries, preempted, hits, free_tokens, running, waiting)
    later = (list(drafts), batch.swapped_tokens)
    return StepRecord(step, now_s, duration_s, idle_before, *decided, *later)
