"""Check the invariants at every step of a scheduler and its memory.

Policies loaded by path always run under this check, the shipped ones in their tests. A broken
invariant stops the run with its name, the step and the sequence.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from servetwin.policies.batch import Batch, ScheduledSequence
from servetwin.policies.config import PolicyConfig
from servetwin.policies.drafted_decodes import DraftedDecodes
from servetwin.policies.protocols import CheckedMemory, Refusal, Scheduler
from servetwin.policies.scheduler_proxy import SchedulerProxy
from servetwin.policies.sequence import Sequence
from servetwin.workloads.errors import PluginError, PolicyError, ServetwinError

ONCE = "every request ends exactly once"
CONSERVED = "free + used = total, and no block is in two tables"
BUDGETS = "a batch never exceeds its budgets"
POSITIONS = "every position is computed once, in order, in memory that its sequence holds"
TOKENS = "tokens out = tokens asked"
WORK = "no idle step while something could run"


class InvariantBroken(PolicyError):
    """A policy broke an invariant."""


class InvariantChecked(SchedulerProxy):
    """A scheduler that decides as the one inside does, and checks what it decided."""

    def __init__(self, inner: Scheduler, config: PolicyConfig) -> None:
        super().__init__(inner)
        self.preemptions = 0
        self._config = config
        self._has_budget = getattr(inner, "has_token_budget", True)
        self._present: dict[str, Sequence] = {}
        self._step = 0

    def add(self, seq: Sequence) -> Refusal | None:
        """Add a sequence; the same one must not be in the scheduler twice."""
        refusal = self._inner.add(seq)
        if refusal is None:
            if seq.request_id in self._present:
                self._fail(ONCE, seq, "it is in the scheduler already")
            self._present[seq.request_id] = seq
        return refusal

    def abort(self, request_id: str) -> Sequence | None:
        """As the scheduler."""
        seq = self._inner.abort(request_id)
        self._present.pop(request_id, None)
        return seq

    def schedule(self, now_s: float) -> Batch | None:
        """As the scheduler; then the memory and the batch are checked."""
        with self._named("schedule"):
            batch = self._inner.schedule(now_s)
            for seq, _ in self._inner.dropped:
                self._present.pop(seq.request_id, None)
            newest = batch.entries[-1].seq if batch and batch.entries else None
            self._check_memory(newest)
            if batch is not None:
                self._check_batch(batch)
                self._check_memory(newest)
            elif self._present and self._inner.wake_s() is None:
                seq = next(iter(self._present.values()))
                free = self.memory.free_tokens()
                self._fail(WORK, seq, f"it waits, and {free} KV tokens are free")
            return batch

    def complete(self, batch: Batch, steps: int = 1) -> list[Sequence]:
        """As the scheduler; then the ended sequences and the memory are checked."""
        with self._named("complete"):
            coming = _coming_tokens(batch, steps)
            finished = self._inner.complete(batch, steps)
            for seq, tokens, computed, generated in coming:
                self._check_drafted(seq, tokens, seq.computed_tokens - computed, POSITIONS, "kept")
                generated = seq.generated_tokens - generated
                self._check_drafted(seq, tokens, generated, TOKENS, "taken")
            self._step += steps
            for seq in finished:
                if seq.request_id not in self._present:
                    self._fail(ONCE, seq, "it has ended already, or never came")
                if not seq.stopped and seq.generated_tokens != seq.max_tokens:
                    self._fail(TOKENS, seq, f"{seq.generated_tokens} out, {seq.max_tokens} asked")
                del self._present[seq.request_id]
            self._check_memory(finished[0] if finished else None)
            return finished

    def repeatable_steps(self, batch: Batch) -> int:
        """As the scheduler, at least 1."""
        steps = self._inner.repeatable_steps(batch)
        if steps < 1:
            self._fail(WORK, None, f"repeatable_steps is {steps}")
        return steps

    def _check_batch(self, batch: Batch) -> None:
        config = self._config
        entries = batch.entries
        if len(entries) > config.max_seqs:
            self._fail(BUDGETS, None, f"{len(entries)} sequences, {config.max_seqs} allowed")
        rows = sum(entry.rows for entry in entries)
        if self._has_budget and rows > config.token_budget:
            self._fail(BUDGETS, None, f"{rows} rows, {config.token_budget} allowed")
        seen: set[Sequence] = set()
        for place, entry in enumerate(entries):
            if entry.seq in seen:
                self._fail(POSITIONS, entry.seq, "it is in the batch twice")
            seen.add(entry.seq)
            self._check_entry(entry, drafted=place < batch.drafted)
        self.preemptions += len(batch.preempted)

    def _check_entry(self, entry: ScheduledSequence, drafted: bool) -> None:
        seq, start, tokens = entry.seq, entry.start, entry.tokens
        if entry.rows < 1:
            self._fail(POSITIONS, seq, "its entry computes nothing")
        if start != seq.computed_tokens:
            detail = f"it starts at {start}, {seq.computed_tokens} positions are computed"
            self._fail(POSITIONS, seq, detail)
        last = start + tokens
        if drafted:  # they are behind its last position, or a block is behind all of its tokens
            last = start + self._config.prompt_token
        if tokens and entry.samples != (last == seq.total_tokens):
            self._fail(POSITIONS, seq, "it samples before its last position, or not at it")
        room = seq.region_tokens
        if self.memory.layout == "paged":
            room = len(self.memory.table(seq, start + tokens)) * self.memory.block_tokens
        if start + tokens > room:
            self._fail(POSITIONS, seq, f"it needs {start + tokens} positions and holds {room}")

    def _check_drafted(
        self, seq: Sequence, coming: int, taken: int, invariant: str, verb: str
    ) -> None:
        """Of the rows of a pass, as many stay as tokens came out and were asked for."""
        if taken != coming:
            self._fail(
                invariant, seq, f"{coming} tokens came out of its passes, {taken} were {verb}"
            )

    def _check_memory(self, touched: Sequence | None) -> None:
        """Check what must hold at rest; ``touched`` is the sequence that came or went last."""
        holders = self._inner.holders()
        if isinstance(self.memory, CheckedMemory):
            try:
                self.memory.check(holders)
            except AssertionError as error:
                self._fail(CONSERVED, touched, str(error))
        usage = self.memory.usage(holders)
        waste = usage.internal_waste_tokens + usage.external_waste_tokens
        used = usage.live_tokens + usage.reserved_tokens + waste + usage.cached_tokens
        least = min(usage.live_tokens, usage.reserved_tokens, usage.free_tokens)
        if used + usage.free_tokens != usage.capacity_tokens or least < 0:
            self._fail(CONSERVED, touched, f"{usage}")
        if not self._present and usage.live_tokens + usage.reserved_tokens:
            self._fail(CONSERVED, touched, f"no sequence is left, but {usage}")

    @contextmanager
    def _named(self, call: str) -> Iterator[None]:
        """Name the policies where their batches or sequences are not what these checks can read."""
        try:
            yield
        except ServetwinError:
            raise
        except Exception as error:
            raise PluginError(
                f"{self._config.batching} over {self._config.kv}: {call}() at step {self._step} "
                f"gave what cannot be run: {type(error).__name__}: {error}"
            ) from error

    def _fail(self, invariant: str, seq: Sequence | None, detail: str) -> NoReturn:
        subject = f"sequence {seq.request_id!r}" if seq else "the batch as a whole"
        raise InvariantBroken(
            f"{self._config.batching} over {self._config.kv} broke an invariant at step "
            f"{self._step}: {invariant!r}; {subject}: {detail}"
        )


def _coming_tokens(batch: Batch, steps: int) -> list[tuple[Sequence, int, int, int]]:
    """Return each decode that verifies drafts, what comes out, its computed and generated ones."""
    group = batch.lockstep
    if not batch.drafted or not isinstance(group, DraftedDecodes):
        return []
    return [(s, group.coming(s, steps), s.computed_tokens, s.generated_tokens) for s in group]
