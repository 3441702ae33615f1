"""What every scheduler has, beside its decisions."""

from collections.abc import Iterable
from typing import ClassVar

from servetwin.policies.batch import Batch
from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import KVMemory, Load, Refusal, WaitingQueue
from servetwin.policies.queues.adapter_slots import AdapterSlots
from servetwin.policies.queues.intake import Intake, queue_in_order
from servetwin.policies.schedulers.admission import Room
from servetwin.policies.schedulers.preemption import swap_for
from servetwin.policies.sequence import Sequence
from servetwin.workloads.native_class import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class SchedulerBase:
    """The parts of a scheduler, how sequences move between them, and what may be read of them.

    A subclass decides (``decide``), except where nothing but decodes is left: these run on without
    a decision.

    A sequence waits in ``intake``; once admitted it is in ``prompts``, in order of admission, until
    its prompt is computed; with its first token it joins ``decodes``. It gets its memory from
    ``admitting_memory``: ``memory`` itself, or a rule that asks ``memory`` for more at once.

    Between two decisions a batch of decodes only repeats, each context one token longer: a
    macro-step. A simulator takes all its steps at once; the engine takes them one by one and gets
    the same batches. So whoever may not join now may not join in any of these steps: a subclass
    whose rule can change its mind meanwhile overrides ``repeatable_steps``.
    """

    has_token_budget: ClassVar[bool] = True
    """Whether ``token_budget`` bounds the rows of each step."""

    def __init__(self, memory: KVMemory, config: PolicyConfig, room: Room) -> None:
        self.memory = memory
        self.config = config
        self.admitting_memory, refusing, decodes, self.chunks = room
        self.intake = Intake(self.build_queue(config), refusing, config)
        self.queue, self.dropped = self.intake.queue, self.intake.dropped
        self.prompts: list[Sequence] = []
        self.decodes = decodes
        self.decodes_only = Batch((), decodes)
        self.max_seqs = config.max_seqs
        self.one_row_prefills = config.one_row_chunk == "prefill"
        self.swap = swap_for(config) if config.preemption == "swap" else None

    def decide(self, batch: Batch, now_s: float) -> None:
        """Fill a step, which has all decodes. Every scheduler defines its own."""
        raise NotImplementedError

    def build_queue(self, config: PolicyConfig) -> WaitingQueue:
        """Return the empty waiting queue; a subclass may have another order."""
        if config.adapter_slots:
            return AdapterSlots(config, self.adapting)
        return queue_in_order(self.memory, config)

    def add(self, seq: Sequence) -> Refusal | None:
        """Queue a sequence, or return why it is refused."""
        refusal = self.intake.refusal(seq)
        if refusal is None and self.config.queued_tokens_limit is not None:
            refusal = self.overflow(self.config.queued_tokens_limit)
        if refusal is None:
            self.enqueue(seq)
        return refusal

    def overflow(self, limit: int) -> Refusal | None:
        """Return why no request is taken in: too many tokens of prompts are not computed yet."""
        alone, tokens = not self.config.queue_samples, 0
        for seq in [*self.waiting(), *self.prompts]:
            if not seq.generated_tokens:
                tokens += seq.prompt_tokens * (1 if alone or seq.siblings else seq.samples)
        reason = f"{tokens} tokens of prompts are waiting already; the limit is {limit}"
        return Refusal("queue_full", reason) if tokens >= limit else None

    def enqueue(self, seq: Sequence) -> None:
        """Let a sequence wait, after all that came before it."""
        self.intake.push(seq)

    def abort(self, request_id: str) -> Sequence | None:
        """Forget a request and free what it holds; None when it is not here."""
        aborted = None
        while seq := self.intake.remove(request_id):
            if self.swap is not None:
                self.swap.fetch(seq)
            aborted = seq
        for seq in self.holders():
            if seq.request_id == request_id:
                self.take_out(seq)
                aborted = seq
        return aborted

    def take_out(self, seq: Sequence) -> None:
        """Stop a running sequence; its memory is free."""
        if seq.lockstep is not None:
            self.decodes.leave(seq)
        else:
            self.prompts.remove(seq)
        self.memory.release(seq)

    def is_decode(self, seq: Sequence) -> bool:
        """Return whether a running sequence has computed all but its last token."""
        return seq.lockstep is not None

    def preempt(self, seq: Sequence, batch: Batch) -> None:
        """Take the memory of a running sequence; it waits again."""
        decodes, blocks = self.is_decode(seq), seq.blocks
        seq.held.on_host = seq in batch.resumed  # its keys have not come yet, so no cache has them
        self.take_out(seq)
        seq.held.on_host = False
        seq.preemptions += 1
        batch.preempted = [*batch.preempted, seq]
        if self.swap is None or not decodes or not self.swap.store(seq, blocks, batch):
            if self.config.recompute == "computed" and not decodes:
                seq.shorten_prompt()
            seq.base_computed_tokens = 0
        self.queue.push(seq)

    def resume(self, seq: Sequence, batch: Batch) -> bool:
        """Admit a sequence whose keys and values lie elsewhere; it decodes at once.

        They are in host memory, or on another server, which computed its prompt.
        """
        grown = batch.lockstep is not None  # the decodes have grown for this step already
        if not self.admitting_memory.reserve(
            seq, seq.base_computed_tokens + grown * self.decodes.reach
        ):
            return False
        self.intake.pop()
        if self.swap is not None:
            batch.swapped_tokens += self.swap.fetch(seq)
        batch.swapped_tokens += seq.held.adapter_tokens
        batch.resumed = [*batch.resumed, seq]
        if grown:
            self.decodes.granted_step = self.decodes.steps + 1
        self.decodes.join(seq)
        return True

    def schedule(self, now_s: float) -> Batch | None:
        """Return the decodes, and the prompts that may join them."""
        decodes = self.decodes
        if not (self.queue.size or self.prompts):
            if not decodes.size:
                return None
            if decodes.grow():
                return self.decodes_only
        batch = Batch((), decodes, self.one_row_prefills)
        self.decide(batch, now_s)
        if self.intake.has_limit:
            self.intake.enforce_limit()
        return batch if decodes.size or batch.chunks else None

    def repeatable_steps(self, batch: Batch) -> int:
        """Return the steps until a decode ends or a block is missing; 1 with a prompt."""
        if batch is self.decodes_only:
            return self.decodes.repeats()
        if batch.chunks or batch.preempted or batch.swapped_tokens:
            return 1
        return 1 if self.intake.may_change() and self.has_slot() else self.decodes.repeats()

    def changes_batch(self, seq: Sequence) -> bool:
        """Return whether ``seq``, just added, is next and has a slot, or is one too many."""
        return self.intake.over_limit() or (self.has_slot() and self.queue.head() is seq)

    def has_slot(self) -> bool:
        """Return whether one more sequence may run."""
        return self.decodes.size + len(self.prompts) < self.max_seqs

    def load(self) -> Load:
        """Return (running sequences, waiting sequences, free KV tokens)."""
        running = self.decodes.size + len(self.prompts)
        return running, self.queue.size, self.memory.free_tokens()

    def holders(self) -> list[Sequence]:
        """Return all sequences that hold KV memory."""
        return [*self.decodes, *self.prompts]

    def adapting(self) -> list[Sequence]:
        """Return the running sequences whose adapters a step needs."""
        return self.holders()

    def waiting(self) -> Iterable[Sequence]:
        """Return the waiting sequences, in no order."""
        return iter(self.queue)

    def wake_s(self) -> float | None:
        """Return None: what can run runs at once."""
        return None
