"""Who waits for a scheduler: in which order, whom it takes in, and whom it gives up."""

from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import AdmittingMemory, KVMemory, Refusal, WaitingQueue
from servetwin.policies.registry import QUEUES
from servetwin.policies.sequence import Sequence, Siblings
from servetwin.workloads.native_class import mypyc_attr


def queue_in_order(memory: KVMemory, config: PolicyConfig) -> WaitingQueue:
    """Return an empty waiting queue in ``config.queue_order``."""
    queue = QUEUES[config.queue_order]
    made: WaitingQueue = queue(memory) if config.queue_order == "longest-prefix" else queue()
    return made


def has_stable_head(queue: WaitingQueue) -> bool:
    """Return whether the head is sure to stay until a sequence is added or removed."""
    if getattr(queue, "ranks_are_fixed", False):
        return True
    return QUEUES.name_of(type(queue)) in ("fcfs", "fair")


@mypyc_attr(allow_interpreted_subclasses=True)
class Intake:
    """A waiting queue with what may happen before and instead of admission."""

    def __init__(self, queue: WaitingQueue, memory: AdmittingMemory, config: PolicyConfig) -> None:
        self.queue = queue
        # Sequences given up since the list was last emptied.
        self.dropped: list[tuple[Sequence, Refusal]] = []
        # Whether the next in line may be another, or find room, after any step.
        self.is_restless = (
            not has_stable_head(queue)
            or config.admission == "peak"
            or getattr(memory, "gives_back", False)
        )
        self._memory = memory
        self._longest = config.max_model_len
        longest = Sequence("", 0.0, max(1, self._longest - 1), 2)  # which decodes
        # Whether every length that the model allows fits the memory.
        self._holds_any = memory.refusal(longest) is None
        self._queues_samples = config.queue_samples
        self._limit = config.queue_limit
        # Whether sequences may be given up since too many wait.
        self.has_limit = self._limit is not None
        # Waiting sequences that have not run yet, the newest last; None without a limit.
        self._newcomers: dict[Sequence, None] | None = None if self._limit is None else {}
        # Whether the limit may have changed which sequence is next.
        self._has_changed = False
        self._shed_ttft_s = config.shed_ttft_s
        # Whether sequences may be given up since they waited too long.
        self.sheds = self._shed_ttft_s is not None
        self._arrivals = 0
        self._admissions = 0

    def refusal(self, seq: Sequence) -> Refusal | None:
        """Return why a sequence is refused; None where it may wait."""
        total = seq.prompt_tokens + seq.max_tokens
        if total > self._longest:
            reason = f"{total} tokens are more than the model length of {self._longest}"
            return Refusal("too_long", reason)
        if not self._holds_any and (misfit := self._memory.refusal(seq)):
            return Refusal("too_long", misfit)
        return None

    def push(self, seq: Sequence) -> None:
        """Let a sequence wait; its samples are numbered after it, or wait too."""
        seq.arrival_number = self._arrivals + 1
        self._arrivals += seq.samples
        self.queue.push(seq)
        if self._newcomers is not None and not _has_run(seq):
            self._newcomers[seq] = None
        if self._queues_samples and seq.begins_samples and not seq.base_computed_tokens:
            seq.siblings = Siblings(seq)
            for sample in range(1, seq.samples):
                self.queue.push(seq.fork(sample, seq.arrival_number + sample))

    def pop(self) -> None:
        """Take the next in line out: it is admitted, or given up."""
        seq = self.queue.pop()
        self._admissions = seq.admission_number = self._admissions + 1
        if self._newcomers:
            self._newcomers.pop(seq, None)

    def number(self, seq: Sequence) -> None:
        """Give a sequence its place in the order of admission."""
        self._admissions = seq.admission_number = self._admissions + 1

    def remove(self, request_id: str) -> Sequence | None:
        """Remove and return a waiting sequence; None when it does not wait."""
        seq = next((seq for seq in self.queue if seq.request_id == request_id), None)
        if seq is not None:
            self.queue.discard(seq)
            if self._newcomers:
                self._newcomers.pop(seq, None)
        return seq

    def give_up_if_late(self, seq: Sequence, now_s: float) -> bool:
        """Give up a sequence that waited longer than the TTFT limit; return whether it did.

        Asked when it could be admitted, with room and all: then no macro-step hides a decision.
        """
        limit_s = self._shed_ttft_s
        if limit_s is None or _has_run(seq) or now_s - seq.arrival_s <= limit_s:
            return False
        reason = f"waited longer than its TTFT limit of {limit_s:g} s"
        self.dropped.append((seq, Refusal("too_late", reason)))
        return True

    def over_limit(self) -> bool:
        """Return whether a sequence will be given up at the next step."""
        return self._limit is not None and self.queue.size > self._limit

    def enforce_limit(self) -> None:
        """Give up the newest sequences that wait beyond the limit; called after admission."""
        newcomers, limit, queue = self._newcomers, self._limit, self.queue
        self._has_changed = False
        if newcomers is None or limit is None or queue.size <= limit:
            return
        dropped = []
        while newcomers and queue.size > limit:
            seq, _ = newcomers.popitem()
            samples = [seq]
            if seq.siblings is not None:
                samples = [each for each in queue if each.request_id == seq.request_id]
            for each in samples:
                queue.discard(each)
            dropped.append((seq, Refusal("queue_full", f"{limit} requests are waiting already")))
        self.dropped += reversed(dropped)
        self._has_changed = True

    def may_change(self) -> bool:
        """Return whether another sequence may be next, or find room, although none arrives."""
        return self.queue.size > 0 and (self.is_restless or self._has_changed)


def _has_run(seq: Sequence) -> bool:
    """Return whether the request was served in part: then it is not turned away."""
    return seq.preemptions > 0 or seq.siblings is not None or seq.computed_tokens > 0
