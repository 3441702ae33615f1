"""Check the invariants of a scheduler and its memory while they run.

Policies loaded by path always run under this check, the shipped ones in their tests. A broken
invariant stops the run with its name, the step and the sequence.

After each call, what it changed is checked: the chunks of the batch, the sequences that ended. A
*walk* checks every running sequence and all memory. Walks come with the first calls and then ever
more rarely, so that they stay a small part of the run's time; ``every_call`` walks each time.
"""

import sys
from collections.abc import Sequence as Listed
from typing import NoReturn

from servetwin.policies.batch import Batch, ScheduledSequence
from servetwin.policies.config import PolicyConfig
from servetwin.policies.drafted_decodes import DraftedDecodes
from servetwin.policies.lockstep import Lockstep
from servetwin.policies.protocols import CheckedMemory, Refusal, Scheduler
from servetwin.policies.sequence import Sequence
from servetwin.workloads.errors import PluginError, PolicyError, ServetwinError

ONCE = "every request ends exactly once"
CONSERVED = "free + used = total, and no block is in two tables"
BUDGETS = "a batch never exceeds its budgets"
POSITIONS = "every position is computed once, in order, in memory that its sequence holds"
TOKENS = "tokens out = tokens asked"
WORK = "no idle step while something could run"

CALLS_BETWEEN_WALKS = 64
# A walk waits for that many calls for each sequence that it has to look at.
CALLS_PER_RUNNING = 16


class InvariantBroken(PolicyError):
    """A policy broke an invariant."""


class InvariantChecked:
    """A scheduler that decides as the one inside does, and checks what it decided.

    It has its attributes by itself: a class with ``__getattr__`` takes twice as long for each.
    """

    def __init__(self, inner: Scheduler, config: PolicyConfig, every_call: bool = False) -> None:
        self._inner, self.memory, self.dropped = inner, inner.memory, inner.dropped
        self._add, self._schedule, self._complete = inner.add, inner.schedule, inner.complete
        self._repeatable_steps, self.changes_batch = inner.repeatable_steps, inner.changes_batch
        self.wake_s, self.load = inner.wake_s, inner.load
        self.holders, self.waiting = inner.holders, inner.waiting
        self.preemptions = 0
        self._config = config
        self._max_seqs = config.max_seqs
        has_budget = getattr(inner, "has_token_budget", True)
        self._most_rows = config.token_budget if has_budget else sys.maxsize
        self._present: dict[str, Sequence] = {}
        self._step = 0
        self._every_call = every_call
        self._calls = 0
        self._next_walk = 1
        # The call from which an empty server is looked at again.
        self._next_rest = 0
        self._checked_memory = self.memory if isinstance(self.memory, CheckedMemory) else None
        is_paged = self.memory.layout == "paged"
        # Tokens of a block; 0 where sequences hold regions.
        self._room_unit = self.memory.block_tokens if is_paged else 0

    def add(self, seq: Sequence) -> Refusal | None:
        """Add a sequence; the same one must not be in the scheduler twice."""
        refusal = self._add(seq)
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
        """As the scheduler; then the batch is checked, and sometimes the memory."""
        try:
            batch = self._schedule(now_s)
            self.dropped = dropped = self._inner.dropped
            if dropped:
                for seq, _ in dropped:
                    self._present.pop(seq.request_id, None)
            self._calls += 1
            if batch is None:
                self._check_idle()
                return None
            if batch.preempted:
                self.preemptions += len(batch.preempted)
            group = batch.lockstep
            if self._calls >= self._next_walk:
                self._walk(batch)
            elif batch.chunks or batch.drafted or group is None or group.size > self._max_seqs:
                self._check_entries(batch.chunks, decodes=group)
            return batch
        except ServetwinError:
            raise
        except Exception as error:
            raise self._unreadable("schedule", error) from error

    def complete(self, batch: Batch, steps: int = 1) -> list[Sequence]:
        """As the scheduler; then the ended sequences are checked, and sometimes the memory."""
        try:
            if batch.drafted:
                finished = self._complete_drafts(batch, steps)
            else:
                finished = self._complete(batch, steps)
            self._step += steps
            if finished:
                self._check_finished(finished)
            if self._every_call or not self._present:
                self._check_rest(finished)
            return finished
        except ServetwinError:
            raise
        except Exception as error:
            raise self._unreadable("complete", error) from error

    def repeatable_steps(self, batch: Batch) -> int:
        """As the scheduler, from 1 to the tokens that a request may have."""
        steps = self._repeatable_steps(batch)
        if not 1 <= steps <= self._config.max_model_len:
            self._fail(WORK, None, f"repeatable_steps is {steps}")
        return steps

    def _complete_drafts(self, batch: Batch, steps: int) -> list[Sequence]:
        """Complete as the scheduler; of what verified drafts as much stays as came out."""
        group = batch.lockstep
        assert isinstance(group, DraftedDecodes), "decodes verify drafts"
        drafted = [
            (seq, group.coming(seq, steps), seq.computed_tokens, seq.generated_tokens)
            for seq in group
        ]
        finished = self._complete(batch, steps)
        for seq, coming, computed, generated in drafted:
            came = f"{coming} tokens came out of its passes"
            if (kept := seq.computed_tokens - computed) != coming:
                self._fail(POSITIONS, seq, f"{came}, {kept} were kept")
            if (taken := seq.generated_tokens - generated) != coming:
                self._fail(TOKENS, seq, f"{came}, {taken} were taken")
        return finished

    def _check_rest(self, finished: list[Sequence]) -> None:
        """Check the memory of an empty server: what is free each time, all at times."""
        memory = self.memory
        is_due = self._every_call or self._calls >= self._next_rest
        if is_due or memory.free_tokens() != memory.capacity_tokens:
            self._next_rest = self._calls + CALLS_BETWEEN_WALKS
            self._check_memory(finished[0] if finished else None)

    def _check_finished(self, finished: list[Sequence]) -> None:
        present = self._present
        for seq in finished:
            if present.pop(seq.request_id, None) is None:
                self._fail(ONCE, seq, "it has ended already, or never came")
            if not seq.stopped and seq.generated_tokens != seq.max_tokens:
                self._fail(TOKENS, seq, f"{seq.generated_tokens} out, {seq.max_tokens} asked")

    def _check_idle(self) -> None:
        """Check that nothing could run, where no batch runs."""
        if self._present and self.wake_s() is None:
            self._check_memory(None)
            seq = next(iter(self._present.values()))
            free = self.memory.free_tokens()
            self._fail(WORK, seq, f"it waits, and {free} KV tokens are free")
        elif self._every_call:
            self._check_memory(None)

    def _walk(self, batch: Batch) -> None:
        """Check every sequence and all memory, and set the call of the next walk.

        Walks come at calls 1, 4, 16 and 64, then at every 64th, but the longer a walk takes (for
        each running sequence) the longer the next one waits.
        """
        entries = batch.entries
        newest = entries[-1].seq if entries else None
        if self._every_call:
            self._check_memory(newest)
        self._check_entries(entries, drafted=batch.drafted)
        for seq, start, tokens, _, _ in entries if self._room_unit else ():
            self.memory.table(seq, start + tokens)
        self._check_memory(newest)  # whose tables may be longer now
        if not self._every_call:
            waits = max(CALLS_BETWEEN_WALKS, CALLS_PER_RUNNING * len(entries))
            self._next_walk = self._calls + min(3 * self._calls, waits)

    def _check_entries(
        self,
        entries: Listed[ScheduledSequence],
        drafted: int = 0,
        decodes: Lockstep | None = None,
    ) -> None:
        """Check the sizes of a batch, and what it computes of each sequence.

        The first ``drafted`` entries verify drafts, ``decodes`` run beside the entries.
        """
        sequences, rows = len(entries), sum([entry.tokens + entry.padding for entry in entries])
        if decodes is not None:
            sequences, rows = sequences + decodes.size, rows + decodes.size * decodes.rows
        if sequences > self._max_seqs:
            self._fail(BUDGETS, None, f"{sequences} sequences, {self._max_seqs} allowed")
        if rows > self._most_rows:
            self._fail(BUDGETS, None, f"{rows} rows, {self._most_rows} allowed")
        seen: set[Sequence] = set()
        for place, entry in enumerate(entries):
            seq = entry.seq
            if seq in seen or (decodes is not None and seq.lockstep is decodes):
                self._fail(POSITIONS, seq, "it is in the batch twice")
            seen.add(seq)
            self._check_entry(entry, place < drafted)

    def _check_entry(self, entry: ScheduledSequence, drafted: bool) -> None:
        seq, start, tokens, yields_token, padding = entry
        if tokens + padding < 1:
            self._fail(POSITIONS, seq, "its entry computes nothing")
        computed = seq.computed_tokens
        if start != computed:
            self._fail(POSITIONS, seq, f"it starts at {start}, {computed} positions are computed")
        end = start + tokens
        last = end
        if drafted:  # they are behind its last position, or a block is behind all of its tokens
            last = start + self._config.prompt_token
        if tokens and yields_token != (last == seq.total_tokens):
            self._fail(POSITIONS, seq, "it yields a token before its last position, or not at it")
        size = self._room_unit
        room = seq.held.blocks * size if size else seq.held.region_tokens
        if size and end > room:  # a decode, which grows
            room = len(self.memory.table(seq, end)) * size
        if end > room:
            self._fail(POSITIONS, seq, f"it needs {end} positions and holds {room}")

    def _check_memory(self, touched: Sequence | None) -> None:
        """Check what must hold at rest; ``touched`` is the sequence that came or went last."""
        holders = self.holders()
        if self._checked_memory is not None:
            try:
                self._checked_memory.check(holders)
            except AssertionError as error:
                self._fail(CONSERVED, touched, str(error))
            if not self._every_call and self._present:
                return
        usage = self.memory.usage(holders)
        waste = usage.internal_waste_tokens + usage.external_waste_tokens
        used = usage.live_tokens + usage.reserved_tokens + waste + usage.cached_tokens
        least = min(usage.live_tokens, usage.reserved_tokens, usage.free_tokens)
        if used + usage.free_tokens != usage.capacity_tokens or least < 0:
            self._fail(CONSERVED, touched, f"{usage}")
        if not holders and usage.live_tokens + usage.reserved_tokens:
            self._fail(CONSERVED, touched, f"no sequence is left, but {usage}")

    def _unreadable(self, call: str, error: Exception) -> PluginError:
        """Return the error for batches or sequences that these checks cannot read."""
        return PluginError(
            f"{self._config.batching} over {self._config.kv}: {call}() at step {self._step} "
            f"gave what cannot be run: {type(error).__name__}: {error}"
        )

    def _fail(self, invariant: str, seq: Sequence | None, detail: str) -> NoReturn:
        subject = f"sequence {seq.request_id!r}" if seq else "the batch as a whole"
        raise InvariantBroken(
            f"{self._config.batching} over {self._config.kv} broke an invariant at step "
            f"{self._step}: {invariant!r}; {subject}: {detail}"
        )
