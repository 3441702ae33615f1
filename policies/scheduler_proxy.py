"""A scheduler around another one."""

from collections.abc import Callable, Iterable
from typing import Any

from servetwin.policies.batch import Batch
from servetwin.policies.protocols import KVMemory, Load, Refusal, Scheduler
from servetwin.policies.sequence import Sequence


class SchedulerProxy:
    """Hands every call on to the scheduler inside; a subclass changes some of them."""

    memory: KVMemory
    dropped: list[tuple[Sequence, Refusal]]
    add: Callable[[Sequence], Refusal | None]
    abort: Callable[[str], Sequence | None]
    schedule: Callable[[float], Batch | None]
    complete: Callable[..., list[Sequence]]
    repeatable_steps: Callable[[Batch], int]
    changes_batch: Callable[[Sequence], bool]
    wake_s: Callable[[], float | None]
    load: Callable[[], Load]
    holders: Callable[[], list[Sequence]]
    waiting: Callable[[], Iterable[Sequence]]

    def __init__(self, inner: Scheduler) -> None:
        self._inner = inner
        self.memory = inner.memory

    def __getattr__(self, name: str) -> Any:
        """Return what the scheduler inside has."""
        return getattr(self._inner, name)
