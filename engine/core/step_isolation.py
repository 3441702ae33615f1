"""Run a step so that a sequence which makes it fail takes no other with it.

A batch that raises is run again in halves, and these in halves, until every sequence has its token
or stands alone with its exception. What fails only together (a batch too large for the device)
fails nowhere, and of a prompt that is too large alone the rows are halved. A prompt whose prefix
blocks were to be filled by a sequence that failed fills them itself; blocks that no sequence has
filled are forgotten before another can find them.
"""

import logging
from collections.abc import Mapping
from collections.abc import Sequence as Listed
from dataclasses import dataclass, field
from traceback import clear_frames, format_exception
from typing import Any, Protocol

from servetwin.engine.sampling.token_state import NewToken
from servetwin.policies.batch import Batch, ScheduledSequence
from servetwin.policies.protocols import CachingMemory, KVMemory, Scheduler
from servetwin.policies.sequence import Sequence
from servetwin.workloads.errors import EngineError

_SIGNS = ("defaultcpuallocator", "out of memory", "not enough memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory for tensors, on the CPU or a GPU, could not be had."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(sign in text for sign in _SIGNS)


def let_go(error: BaseException) -> None:
    """Free the tensors that the frames of an exception hold: the next try needs their room."""
    clear_frames(error.__traceback__)


_LOG = logging.getLogger(__name__)
NO_ROOM = EngineError("memory ran out in its step, even for one row of it alone")


# (block, the block that gets its keys and values).
BlockCopies = list[tuple[int, int]]


class ExecutorLost(Exception):
    """The executor can run no step any more, for no sequence; its process has to start again."""


class Executor(Protocol):
    """Computes one step: the bundled ``Runner``, or a fake in tests."""

    def execute(self, batch: Batch, states: Mapping[str, Any]) -> dict[str, list[NewToken]]:
        """Return the new tokens of every entry that samples, by output id."""

    def copy_blocks(self, copies: BlockCopies) -> None:
        """Copy keys and values from block to block, all at once, before the next step."""


class KVMover(Protocol):
    """Moves keys and values between the device and host memory, as the policies have decided."""

    def before(self, batch: Batch) -> dict[str, Exception]:
        """Move what the step needs or overwrites; return the sequences that cannot run, and why."""

    def after(self, batch: Batch, failed: dict[str, Exception]) -> None:
        """Copy what the step has computed, but for the sequences that failed in it."""


@dataclass(slots=True)
class StepResult:
    """The tokens of a step by output id, and the exceptions by request id."""

    tokens: dict[str, list[NewToken]] = field(default_factory=dict)
    failures: dict[str, Exception] = field(default_factory=dict)


class StepIsolation:
    """Executes batches; keeps in mind which failed sequences left blocks that are not filled."""

    def __init__(self, executor: Executor, block_tokens: int, movers: Listed[KVMover] = ()) -> None:
        self._executor = executor
        self._block_tokens = block_tokens
        self._movers = movers
        # Blocks of the running step that a failed sequence should have filled.
        self._unfilled: set[int] = set()
        # Whether one row of a prompt is a chunk in the running step.
        self._one_row_prefills = False
        # Those of the sequences of the running step.
        self._states: Mapping[str, Any] = {}
        # What has come of the running step so far.
        self._result = StepResult()
        # Failed sequences that left such blocks, until they have released them.
        self._failed: list[Sequence] = []

    def execute(self, batch: Batch, states: Mapping[str, Any]) -> StepResult:
        """Run a step. Raises ``ExecutorLost`` only."""
        self._one_row_prefills, self._states = batch.one_row_prefills, states
        self._result = StepResult()
        self._unfilled.clear()
        stuck: dict[str, Exception] = {}
        for mover in self._movers:
            stuck |= mover.before(batch)
        if stuck:
            self._compute_but(stuck, batch.entries)
        else:
            self._run(batch)
        for mover in self._movers:
            mover.after(batch, self._result.failures)
        return self._result

    def forget_unfilled(self, scheduler: Scheduler) -> None:
        """Forget prefixes that were never computed, once no sequence holds them."""
        if not self._failed:
            return
        holders = {seq.request_id for seq in scheduler.holders()}
        released = [seq for seq in self._failed if seq.request_id not in holders]
        if released:
            self._failed = [seq for seq in self._failed if seq.request_id in holders]
            _forget_idle(scheduler.memory)

    def _compute_but(
        self, stuck: Mapping[str, Exception], entries: list[ScheduledSequence]
    ) -> None:
        """Run a step without the sequences whose keys and values could not be moved."""
        for entry in entries:
            if entry.seq.request_id in stuck:
                self._fail(entry, stuck[entry.seq.request_id])
        self._result.failures |= stuck
        others = [entry for entry in entries if entry.seq.request_id not in stuck]
        if others:
            self._run(self._batch(others))

    def _run(self, batch: Batch) -> None:
        entries = batch.entries if self._unfilled else ()
        filling = [self._with_unfilled(entry) for entry in entries]
        try:
            whole = self._batch(filling) if filling else batch
            self._result.tokens |= self._executor.execute(whole, self._states)
        except ExecutorLost:
            raise
        except Exception as error:
            self._split(batch.entries, error)
        else:
            for entry in filling:
                self._unfilled.difference_update(self._blocks(entry))

    def _split(self, entries: list[ScheduledSequence], error: Exception) -> None:
        """Run entries that failed together in halves, in order; fail one that is alone.

        One that is too large for the memory is run in two parts, as a prompt in chunks.
        """
        has_no_room = is_out_of_memory(error)
        if has_no_room:
            let_go(error)
        if len(entries) > 1:
            middle = len(entries) // 2
            self._run(self._batch(entries[:middle]))
            self._run(self._batch(entries[middle:]))
            return
        (entry,) = entries
        if not entry.tokens:  # the padding of a member that has ended
            return
        if has_no_room and entry.rows > 1:
            for part in _parts(entry):
                if entry.seq.request_id not in self._result.failures:
                    self._run(self._batch([part]))
            return
        self._fail(entry, NO_ROOM if has_no_room else error)

    def _fail(self, entry: ScheduledSequence, error: Exception) -> None:
        trace = "".join(format_exception(error, chain=False)).rstrip()
        _LOG.warning("request %s failed\n%s", entry.seq.request_id, trace)
        self._result.failures[entry.seq.request_id] = error
        self._unfilled.update(self._blocks(entry))
        self._failed.append(entry.seq)

    def _batch(self, entries: list[ScheduledSequence]) -> Batch:
        """Return a part of the running step."""
        batch = Batch(entries)
        batch.one_row_prefills = self._one_row_prefills
        return batch

    def _with_unfilled(self, entry: ScheduledSequence) -> ScheduledSequence:
        """Return the entry, begun at the first block before it that another failed to fill; a
        state begins with its sequence.
        """
        seq, size = entry.seq, self._block_tokens
        places = [
            place
            for table in (seq.blocks, *seq.states)
            for place, block in enumerate(table[: entry.start // size])
            if block in self._unfilled
        ]
        if not places or not entry.tokens:
            return entry
        start = 0 if seq.states else min(places) * size
        return entry._replace(start=start, tokens=entry.start + entry.tokens - start)

    def _blocks(self, entry: ScheduledSequence) -> list[int]:
        """Return the blocks that the entry fills (paged memory)."""
        first, end = entry.start // self._block_tokens, entry.start + entry.tokens
        part = slice(first, -(-end // self._block_tokens))
        tables = (entry.seq.blocks, *entry.seq.states)
        return [block for table in tables for block in table[part] if block >= 0]


def _parts(entry: ScheduledSequence) -> list[ScheduledSequence]:
    """Return both halves of an entry's rows; what is thrown away is left out."""
    if entry.padding:
        return [entry._replace(padding=0)]
    half = entry.tokens // 2
    first = entry._replace(tokens=half, yields_token=False)
    return [first, entry._replace(start=entry.start + half, tokens=entry.tokens - half)]


def _forget_idle(memory: KVMemory) -> None:
    if isinstance(memory, CachingMemory):
        memory.forget_idle()
    elif memory.shares_prefixes:
        raise ExecutorLost(f"{type(memory).__name__} has no forget_idle to drop a failed prefix")
