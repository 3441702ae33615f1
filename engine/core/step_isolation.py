"""Run a step so that a sequence which makes it fail takes no other with it.

A batch that raises is run again in halves, and these in halves, until every sequence has its token
or stands alone with its exception. What fails only together (a batch too large for the device)
fails nowhere. A prompt whose prefix blocks were to be filled by a sequence that failed fills them
itself; blocks that no sequence has filled are forgotten before another can find them.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from traceback import format_exception
from typing import Any, Protocol

from engine.sampling.new_token import NewToken
from policies.batch import Batch, ScheduledSequence
from policies.protocols import CachingMemory, KVMemory, Scheduler
from policies.sequence import Sequence

_LOG = logging.getLogger(__name__)


class ExecutorLost(Exception):
    """The executor can run no step any more, for no sequence; its process has to start again."""


class Executor(Protocol):
    """Computes one step: the bundled ``Runner``, or a fake in tests."""

    def execute(self, batch: Batch, states: Mapping[str, Any]) -> dict[str, list[NewToken]]:
        """Return the new tokens of every entry that samples, by request id."""


@dataclass(slots=True)
class StepResult:
    """The tokens of a step by request id, and the exceptions of the sequences that failed."""

    tokens: dict[str, list[NewToken]] = field(default_factory=dict)
    failures: dict[str, Exception] = field(default_factory=dict)


class StepIsolation:
    """Executes batches; keeps in mind which failed sequences left blocks that are not filled."""

    def __init__(self, executor: Executor, block_tokens: int) -> None:
        self._executor = executor
        self._block_tokens = block_tokens
        self._unfilled: set[int] = set()
        """Blocks of the running step that a failed sequence should have filled."""
        self._failed: list[Sequence] = []
        """Failed sequences that left such blocks, until they have released them."""

    def execute(self, batch: Batch, states: Mapping[str, Any]) -> StepResult:
        """Run a step. Raises ``ExecutorLost`` only."""
        try:
            return StepResult(self._executor.execute(batch, states))
        except ExecutorLost:
            raise
        except Exception as error:
            result = StepResult()
            self._unfilled.clear()
            self._split(batch.entries, states, error, result)
            return result

    def forget_unfilled(self, scheduler: Scheduler) -> None:
        """Forget prefixes that were never computed, once no sequence holds them."""
        if not self._failed:
            return
        holders = {seq.request_id for seq in scheduler.holders()}
        released = [seq for seq in self._failed if seq.request_id not in holders]
        if released:
            self._failed = [seq for seq in self._failed if seq.request_id in holders]
            _forget_idle(scheduler.memory)

    def _run(
        self, entries: list[ScheduledSequence], states: Mapping[str, Any], result: StepResult
    ) -> None:
        filling = [self._with_unfilled(entry) for entry in entries]
        try:
            result.tokens |= self._executor.execute(Batch(filling), states)
        except ExecutorLost:
            raise
        except Exception as error:
            self._split(entries, states, error, result)
        else:
            for entry in filling:
                self._unfilled.difference_update(self._blocks(entry))

    def _split(
        self,
        entries: list[ScheduledSequence],
        states: Mapping[str, Any],
        error: Exception,
        result: StepResult,
    ) -> None:
        """Run entries that failed together in halves, in order; fail one that is alone."""
        if len(entries) > 1:
            middle = len(entries) // 2
            self._run(entries[:middle], states, result)
            self._run(entries[middle:], states, result)
            return
        (entry,) = entries
        if not entry.tokens:  # the padding of a member that has ended
            return
        trace = "".join(format_exception(error, chain=False)).rstrip()
        _LOG.warning("request %s failed\n%s", entry.seq.request_id, trace)
        result.failures[entry.seq.request_id] = error
        self._unfilled.update(self._blocks(entry))
        self._failed.append(entry.seq)

    def _with_unfilled(self, entry: ScheduledSequence) -> ScheduledSequence:
        """Return the entry, begun at the first block before it that another failed to fill."""
        before = entry.seq.blocks[: entry.start // self._block_tokens]
        places = (place for place, block in enumerate(before) if block in self._unfilled)
        start = next(places, None)
        if start is None or not entry.tokens:
            return entry
        start *= self._block_tokens
        return entry._replace(start=start, tokens=entry.start + entry.tokens - start)

    def _blocks(self, entry: ScheduledSequence) -> list[int]:
        """Return the blocks that the entry fills (paged memory)."""
        first, end = entry.start // self._block_tokens, entry.start + entry.tokens
        return entry.seq.blocks[first : -(-end // self._block_tokens)]


def _forget_idle(memory: KVMemory) -> None:
    if isinstance(memory, CachingMemory):
        memory.forget_idle()
    elif memory.shares_prefixes:
        raise ExecutorLost(f"{type(memory).__name__} has no forget_idle to drop a failed prefix")
