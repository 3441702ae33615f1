"""A scheduler around another one, which decides as that does."""

from collections.abc import Iterable

from servetwin.policies.batch import Batch
from servetwin.policies.protocols import Load, Refusal, Scheduler
from servetwin.policies.sequence import Sequence


class SchedulerProxy:
    """Hands every call on to the scheduler inside; a subclass changes some of them."""

    def __init__(self, inner: Scheduler) -> None:
        self.memory = inner.memory
        self._inner = inner

    def add(self, seq: Sequence) -> Refusal | None:
        """As the scheduler."""
        return self._inner.add(seq)

    def abort(self, request_id: str) -> Sequence | None:
        """As the scheduler."""
        return self._inner.abort(request_id)

    def schedule(self, now_s: float) -> Batch | None:
        """As the scheduler."""
        return self._inner.schedule(now_s)

    def complete(self, batch: Batch, steps: int = 1) -> list[Sequence]:
        """As the scheduler."""
        return self._inner.complete(batch, steps)

    def repeatable_steps(self, batch: Batch) -> int:
        """As the scheduler."""
        return self._inner.repeatable_steps(batch)

    def changes_batch(self, seq: Sequence) -> bool:
        """As the scheduler."""
        return self._inner.changes_batch(seq)

    def wake_s(self) -> float | None:
        """As the scheduler."""
        return self._inner.wake_s()

    def load(self) -> Load:
        """As the scheduler."""
        return self._inner.load()

    def holders(self) -> list[Sequence]:
        """As the scheduler."""
        return self._inner.holders()

    def waiting(self) -> Iterable[Sequence]:
        """As the scheduler."""
        return self._inner.waiting()

    @property
    def dropped(self) -> list[tuple[Sequence, Refusal]]:
        """As the scheduler."""
        return self._inner.dropped
