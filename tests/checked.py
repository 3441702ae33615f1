"""A scheduler that checks the laws at every step of whatever it wraps."""

from policies.batch import Batch
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

    def cut_by_arrival(self) -> bool:
        return self._inner.cut_by_arrival()

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
            room = self._room(entry.seq)
            assert entry.start + entry.tokens <= room, "computes past its memory"
        self.preemptions += len(batch.preempted)

    def _room(self, seq: Sequence) -> int:
        if isinstance(self.memory, PagedKV):
            return len(seq.blocks) * self.memory.block_tokens
        return seq.region_tokens

    def _check_memory(self) -> None:
        memory = self.memory
        assert isinstance(memory, PagedKV | ContiguousKV)
        holders = [*self._present.values(), *self._held_by_batch()]
        memory.check({id(s): s for s in holders}.values())
        usage = memory.usage()
        parts = (
            usage.live_tokens
            + usage.reserved_tokens
            + usage.internal_waste_tokens
            + usage.external_waste_tokens
            + usage.cached_tokens
            + usage.free_tokens
        )
        assert parts == usage.capacity_tokens, "the parts do not sum to the memory"
        assert min(usage.live_tokens, usage.reserved_tokens, usage.free_tokens) >= 0

    def _held_by_batch(self) -> list[Sequence]:
        return list(getattr(self._inner, "_held", []))


def request(
    name: str, arrival_s: float = 0.0, prompt: int = 4, output: int = 2, ids: tuple[int, ...] = ()
) -> Request:
    """A request in one line; ``ids`` name blocks of four tokens."""
    return Request(name, arrival_s, prompt, output, ids, 4 if ids else None)
