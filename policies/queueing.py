"""What all schedulers share: a waiting queue in order of arrival, its bound, and refusals."""

from collections import deque

from policies.protocols import KVMemory, Refusal
from policies.sequence import Sequence


class WaitingQueue:
    """First come, first served, with an optional bound on those who wait."""

    def __init__(self, memory: KVMemory, max_model_len: int, queue_limit: int | None) -> None:
        self._memory = memory
        self._max_model_len = max_model_len
        self._queue_limit = queue_limit
        self._waiting: deque[Sequence] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, seq: Sequence) -> Refusal | None:
        """Queue a sequence, or say why it is refused."""
        total = seq.prompt_tokens + seq.max_tokens
        if total > self._max_model_len:
            reason = f"{total} tokens are more than the model length of {self._max_model_len}"
            return Refusal("too_long", reason)
        if reason_ := self._memory.refusal(seq):
            return Refusal("too_long", reason_)
        if self._queue_limit is not None and len(self._waiting) >= self._queue_limit:
            return Refusal("queue_full", f"{len(self._waiting)} requests are waiting already")
        self._waiting.append(seq)
        return None

    def head(self) -> Sequence | None:
        """The sequence that is next."""
        return self._waiting[0] if self._waiting else None

    def pop(self) -> Sequence:
        """Take the sequence that is next."""
        return self._waiting.popleft()

    def put_back(self, seq: Sequence) -> None:
        """A preempted sequence goes before all who never ran."""
        self._waiting.appendleft(seq)

    def remove(self, request_id: str) -> Sequence | None:
        """Forget a waiting sequence; None when it does not wait."""
        for seq in self._waiting:
            if seq.request_id == request_id:
                self._waiting.remove(seq)
                return seq
        return None
