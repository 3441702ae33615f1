"""What every scheduler has: a waiting queue with refusals, prompts, and decodes in lockstep."""

from collections.abc import Iterable
from typing import ClassVar

from servetwin.policies.config import PolicyConfig
from servetwin.policies.lockstep import Lockstep
from servetwin.policies.protocols import DiscardingQueue, KVMemory, Load, Refusal
from servetwin.policies.schedulers.queueing import WaitingQueue, queue_in_order
from servetwin.policies.sequence import SampleGroup, Sequence
from servetwin.workloads.native_class import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class SchedulerBase:
    """The state of a scheduler, what may be read from it, and whom it refuses or gives up.

    ``has_token_budget`` says that ``token_budget`` bounds the rows of each step.
    A sequence waits in ``_waiting``; once admitted it is in ``_prefilling``, in order of admission,
    until its prompt is computed; with its first token it joins ``_decodes``.
    """

    has_token_budget: ClassVar[bool] = True

    def __init__(self, memory: KVMemory, config: PolicyConfig) -> None:
        self.memory = memory  # which ``build_queue`` may read
        self.dropped: list[tuple[Sequence, Refusal]] = []
        """Sequences given up since the list was last emptied."""
        self._config = config
        self._waiting = self.build_queue(config)
        self._newcomers: dict[Sequence, None] | None = None if config.queue_limit is None else {}
        """Waiting sequences that have not run yet, the newest last; None without a limit."""
        self._prefilling: list[Sequence] = []
        self._decodes = Lockstep(memory.block_tokens)
        self._max_seqs = config.max_seqs
        self.queues_samples = config.queue_samples
        self._one_row_prefills = config.one_row_chunk == "prefill"
        longest = Sequence("", 0.0, max(1, config.max_model_len - 1), 2)  # which decodes
        self._holds_any = memory.refusal(longest) is None
        """Whether every length that the model allows fits the memory."""
        self._last_arrival_number = 0
        self._admissions = 0

    def build_queue(self, config: PolicyConfig) -> WaitingQueue:
        """Return the empty waiting queue; a subclass may have another order."""
        return queue_in_order(self.memory, config)

    def add(self, seq: Sequence) -> Refusal | None:
        """Queue a sequence, or return why it is refused; its samples are numbered after it."""
        total, longest = seq.prompt_tokens + seq.max_tokens, self._config.max_model_len
        if total > longest:
            reason = f"{total} tokens are more than the model length of {longest}"
            return Refusal("too_long", reason)
        if not self._holds_any and (reason_ := self.memory.refusal(seq)):
            return Refusal("too_long", reason_)
        self._queue(seq)
        return None

    def _queue(self, seq: Sequence) -> None:
        """Let a sequence wait, after all that came before it."""
        seq.arrival_number = self._last_arrival_number + 1
        self._last_arrival_number += seq.samples
        self._waiting.push(seq)
        if self._newcomers is not None and not has_run(seq):
            self._newcomers[seq] = None
        if self.queues_samples and seq.begins_samples and not seq.base_computed_tokens:
            seq.group = SampleGroup(seq)
            for sample in range(1, seq.samples):
                self._waiting.push(seq.fork(sample, seq.arrival_number + sample))

    def load(self) -> Load:
        """Return (running sequences, waiting sequences, free KV tokens)."""
        running = self._decodes.size + len(self._prefilling)
        return running, self._waiting.size, self.memory.free_tokens()

    def holders(self) -> list[Sequence]:
        """Return all sequences that hold KV memory, in order of admission."""
        return [*self._decodes, *self._prefilling]

    def waiting(self) -> Iterable[Sequence]:
        """Return the waiting sequences, in no order."""
        return iter(self._waiting)

    def wake_s(self) -> float | None:
        """Return None: what can run runs at once."""
        return None

    def is_late(self, seq: Sequence, now_s: float) -> bool:
        """Return whether a sequence waited longer than the TTFT limit, and give it up if so.

        Judged when it could be admitted, and not before, so that a run of steps hides no decision.
        """
        limit_s = self._config.shed_ttft_s
        if limit_s is None or has_run(seq) or now_s - seq.arrival_s <= limit_s:
            return False
        reason = f"waited longer than its TTFT limit of {limit_s:g} s"
        self.dropped.append((seq, Refusal("too_late", reason)))
        return True

    def over_limit(self) -> bool:
        """Return whether a sequence will be given up at the next step."""
        limit = self._config.queue_limit
        return limit is not None and self._waiting.size > limit

    def enforce_limit(self) -> bool:
        """Give up the newest sequences that wait beyond the limit; called after admission.

        Returns whether another sequence may be next in line now.
        """
        newcomers, limit = self._newcomers, self._config.queue_limit
        if newcomers is None or limit is None or self._waiting.size <= limit:
            return False
        dropped = []
        while newcomers and self._waiting.size > limit:
            seq, _ = newcomers.popitem()
            self._discard(seq)
            dropped.append((seq, Refusal("queue_full", f"{limit} requests are waiting already")))
        self.dropped += reversed(dropped)
        return self._waiting.size > 0

    def _discard(self, seq: Sequence) -> None:
        if isinstance(self._waiting, DiscardingQueue):
            self._waiting.discard(seq)
        else:
            self._waiting.remove(seq.request_id)

    def _has_slot(self) -> bool:
        return self._decodes.size + len(self._prefilling) < self._max_seqs

    def _pop(self) -> None:
        """Take the next in line out of the queue: it is admitted, or given up."""
        seq = self._waiting.pop()
        self._admissions = seq.admission_number = self._admissions + 1
        if self._newcomers:
            self._newcomers.pop(seq, None)

    def _number(self, seq: Sequence) -> None:
        self._admissions = seq.admission_number = self._admissions + 1

    def _remove(self, request_id: str) -> Sequence | None:
        """Remove and return a waiting sequence; None when it does not wait."""
        seq = self._waiting.remove(request_id)
        if seq is not None and self._newcomers:
            self._newcomers.pop(seq, None)
        return seq


def has_run(seq: Sequence) -> bool:
    """Return whether the request was served in part: then it is not turned away."""
    return seq.preemptions > 0 or seq.group is not None or seq.computed_tokens > 0
