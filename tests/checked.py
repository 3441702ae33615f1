"""A scheduler that checks the laws at every step of whatever it wraps."""

from policies.batch import Batch, ScheduledSequence
from policies.config import PolicyConfig
from policies.contiguous import ContiguousKV
from policies.paged import PagedKV
from policies.protocols import Refusal
from policies.registry import build_scheduler
from policies.sequence import Sequence
from workloads.request import Request


class CheckedScheduler:
    """Asserts laws 1 to 3 (memory, budgets, progress) around every call."""

    def __init__(self, config: PolicyConfig) -> None:
        self._config = config
        self._inner = build_scheduler(config)
        self.memory = self._inner.memory
        self._present: dict[str, Sequence] = {}
        self.preemptions = 0

    def add(self, seq: Sequence) -> Refusal | None:
        refusal = self._inner.add(seq)
        if refusal is None:
            assert seq.request_id not in self._present, "a request is in twice"
            self._present[seq.request_id] = seq
        return refusal

    def abort(self, request_id: str) -> Sequence | None:
        seq = self._inner.abort(request_id)
        self._present.pop(request_id, None)
        return seq

    def schedule(self, now_s: float) -> Batch | None:
        batch = self._inner.schedule(now_s)
        if batch is not None:
            self._check_batch(batch)
        elif self._config.batching == "continuous":
            assert not self._present, "idle although something could run (law 3)"
        self._check_memory()
        return batch

    def complete(self, batch: Batch, steps: int = 1) -> list[Sequence]:
        finished = self._inner.complete(batch, steps)
        for seq in finished:
            assert seq.generated_tokens == seq.max_tokens, "tokens out differ from tokens asked"
            del self._present[seq.request_id]
        self._check_memory()
        return finished

    def quiet_steps(self, batch: Batch) -> int:
        steps = self._inner.quiet_steps(batch)
        assert steps >= 1
        return steps

    def may_cut(self) -> bool:
        return self._inner.may_cut()

    def cut_by(self, seq: Sequence) -> bool:
        return self._inner.cut_by(seq)

    def holders(self) -> list[Sequence]:
        return self._inner.holders()

    def dropped(self) -> list[tuple[Sequence, Refusal]]:
        dropped = self._inner.dropped()
        for seq, _ in dropped:
            del self._present[seq.request_id]
        return dropped

    def wake_s(self) -> float | None:
        return self._inner.wake_s()

    def counts(self) -> tuple[int, int]:
        return self._inner.counts()

    def _check_batch(self, batch: Batch) -> None:
        config = self._config
        ids = [entry.seq.request_id for entry in batch.entries]
        assert len(set(ids)) == len(ids), "a sequence is in the batch twice"
        assert len(ids) <= config.max_seqs, "more sequences than allowed"
        if config.batching == "continuous":
            assert sum(entry.rows for entry in batch.entries) <= config.token_budget
        for entry in batch.entries:
            assert entry.rows >= 1, "an entry without rows"
            assert entry.start == entry.seq.computed_tokens, "a position is skipped or repeated"
            self._check_room(entry)
        self.preemptions += len(batch.preempted)

    def _check_room(self, entry: ScheduledSequence) -> None:
        end = entry.start + entry.tokens
        if isinstance(self.memory, PagedKV):
            assert len(self.memory.table(entry.seq, end)) * self.memory.block_tokens >= end
        else:
            assert end <= entry.seq.region_tokens, "computes past its memory"

    def _check_memory(self) -> None:
        memory = self.memory
        assert isinstance(memory, PagedKV | ContiguousKV)
        holders = self._inner.holders()
        memory.check(holders)
        usage = memory.usage(holders)
        parts = (
            usage.live_tokens
            + usage.reserved_tokens
            + usage.internal_waste_tokens
            + usage.external_waste_tokens
            + usage.cached_tokens
            + usage.free_tokens
        )
        assert parts == usage.capacity_tokens, f"the parts do not sum to the memory: {usage}"
        assert min(usage.live_tokens, usage.reserved_tokens, usage.free_tokens) >= 0, usage


def request(
    name: str, arrival_s: float = 0.0, prompt: int = 4, output: int = 2, ids: tuple[int, ...] = ()
) -> Request:
    """A request in one line; ``ids`` name blocks of four tokens."""
    return Request(name, arrival_s, prompt, output, ids, 4 if ids else None)
