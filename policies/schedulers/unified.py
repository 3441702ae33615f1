"""One movement for prompts and answers (vLLM V1): each sequence computes what it has not yet.

Sequences run in the order in which they were admitted, under one token budget. A prompt takes its
blocks chunk by chunk, so prompts and decodes compete for memory in that order too.
"""

from collections.abc import Reversible
from operator import attrgetter

from servetwin.policies.batch import Batch
from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import GatedMemory, KVMemory
from servetwin.policies.schedulers.admission import in_pieces
from servetwin.policies.schedulers.continuous import ContinuousBatching
from servetwin.policies.sequence import Sequence
from servetwin.workloads.native_class import mypyc_attr

_ADMISSION = attrgetter("admission_number")
# More positions than any sequence has.
_NEVER = 1 << 62


def _rank(seq: Sequence) -> tuple[int, int]:
    """Return the rank of a victim; the answers to one prompt arrived together."""
    first = seq if seq.siblings is None else seq.siblings.first
    return seq.priority, -first.arrival_number


@mypyc_attr(allow_interpreted_subclasses=True)
class UnifiedBatching(ContinuousBatching):
    """Every step has at most ``token_budget`` rows; none is admitted in a step that preempts.

    As long as there is memory for all that runs, the decodes grow together. Where there is not,
    each sequence takes its blocks in turn, and victims lose theirs. In a memory that gives no room
    chunk by chunk, prompts are reserved whole.
    """

    def __init__(self, memory: KVMemory, config: PolicyConfig) -> None:
        super().__init__(memory, config, in_pieces)
        # Rows of one sequence in this step at most.
        self.most_rows = self.budget
        if not config.chunk_prompts:
            self.joins = self.fits_unsplit
        self.growing_groups: int = getattr(memory, "growing_groups", 1)
        self.drafts, self.draft_slots = config.draft_rows > 0, config.draft_slots
        self.gates_whole_prompts = config.full_prompt_gate
        self.long_rows = config.long_prefill_tokens
        self.shared_budget = self.budget if config.long_prefill_adaptive else 0
        # Decodes with drafts that had no turn in the last step.
        self.paused = set[Sequence]()
        # Computed tokens from which a newcomer is padded to the rows of decodes (``padding``).
        self.pads_from = _NEVER
        gives_back: bool = getattr(memory, "gives_back", False)
        # Whether it matters in which order running sequences give blocks back.
        self.gives_in_turn = self.shares_prefixes and gives_back
        # Whether a decode behind prompts has the rows that they leave of the budget.
        self.cuts_drafts = self.drafts and config.prompt_token and self.long_rows > 0
        # Whether it matters in which order they take blocks.
        self.takes_in_turn = self.shares_prefixes or gives_back or self.drafts
        # Whether a prompt may repeat an answer that a prefix cache keeps.
        self.names_answers = False
        self.chunks = None
        by_chunk = self.admitting_memory is memory and memory.layout == "paged"
        self.gated_memory = memory if by_chunk and isinstance(memory, GatedMemory) else None

    def decide(self, batch: Batch, now_s: float) -> None:
        """Fill a step with what runs and what it admits.

        A step in which nothing runs, since its first sequences preempted themselves, takes no time:
        the next one is decided at once.
        """
        while True:
            preempted = len(batch.preempted)
            if self.long_rows:
                self.most_rows = self.share_of_budget()
            super().decide(batch, now_s)
            if self.decodes.size or batch.chunks or len(batch.preempted) == preempted:
                return
            self.settle()

    def share_of_budget(self) -> int:
        """Return the most rows of one sequence, so that a long prompt leaves some to the others."""
        present = self.decodes.size + len(self.prompts) + self.queue.size
        if present <= 1:
            return self.budget
        return max(self.long_rows, self.shared_budget // present)

    def run(self, batch: Batch) -> int:
        """Compute what every running sequence lacks; return the rows left of the budget."""
        memory = self.gated_memory
        if memory is None:
            self.make_room(batch)
        else:
            if self.paused:
                self.go_on_with_paused()
            has_room = (not self.prompts or self.has_room(memory)) and self.decodes.grow()
            if not (has_room or self.makes_room(batch)):
                return self.run_in_turn(batch, memory)
        if self.names_answers:
            self.commit_answers(1)  # the decodes fill blocks before the prompts
        return self.go_on_with_prompts(batch)

    def go_on_with_paused(self) -> None:
        """Let decodes that had no turn in the last step run with the others again."""
        for seq in [seq for seq in self.prompts if seq in self.paused]:
            self.prompts.remove(seq)
            self.decodes.join(seq)
        self.paused = set()

    def makes_room(self, batch: Batch) -> bool:
        """Preempt those admitted last until the decodes have room; False where turns matter.

        Whoever has no turn after the victim loses nothing by it.
        """
        if self.prompts or self.takes_in_turn:
            return False
        running = sorted(self.decodes, key=_ADMISSION)
        while not self.decodes.grow():
            if self.victim(running, self.decodes) is not running[-1]:
                return False
            self.preempt(running.pop(), batch)
        return True

    def has_room(self, memory: GatedMemory) -> bool:
        """Return whether there is memory for what every running sequence computes next."""
        decodes, prompts = self.decodes, self.prompts
        left = self.budget - decodes.rows * decodes.size
        if (self.cuts_drafts or self.gives_in_turn) and decodes.size and prompts:
            last = max([seq.admission_number for seq in decodes])
            before = [seq for seq in prompts if seq.admission_number < last]
            cut = self.cuts_drafts and sum([self.rows_of(s, self.budget) for s in before]) > left
            if cut or (self.gives_in_turn and not all(seq.finished for seq in before)):
                return False
        each = self.memory.block_tokens + decodes.reach + decodes.rows - 2
        most_tokens = left + each * (decodes.size + len(prompts))
        if left >= 0 and most_tokens * self.growing_groups <= self.memory.free_tokens():
            return True  # each of them begins a block
        ends: list[tuple[Sequence, int]] = []
        for seq in prompts:
            tokens = self.rows_of(seq, left)
            left -= tokens
            ends.append((seq, self.end_of(seq, tokens)))
        return memory.has_room(decodes, ends)

    def settle(self) -> None:
        """Learn what came of the steps that have run: here, ``complete`` has done so."""

    def end_of(self, seq: Sequence, rows: int) -> int:
        """Return the positions that ``rows`` of a running sequence need."""
        return seq.base_computed_tokens + rows + self.draft_slots

    def rows_of(self, seq: Sequence, left: int) -> int:
        """Return the rows of a running sequence outside the lockstep, at most ``left``."""
        return min(seq.missing_tokens, left, self.most_rows)

    def fits_unsplit(self, batch: Batch, rows: int, left: int) -> bool:
        """Return whether a prompt need not be split at what is left of the budget."""
        return min(rows, self.most_rows) <= left

    def add_rows(self, batch: Batch, seq: Sequence, rows: int) -> None:
        """Let a step compute the next positions of a sequence outside the lockstep.

        Rows beyond those that it lacks are drafts, or padding.
        """
        if rows and (padding := rows - batch.add_chunk(seq, rows)):
            batch.chunks = (*batch.chunks[:-1], batch.chunks[-1]._replace(padding=padding))

    def commit(self, seq: Sequence, end: int) -> None:
        """Let others find what the step fills up to position ``end``."""
        if self.shares_prefixes:
            self.memory.commit(seq, min(end, seq.total_tokens))

    def run_in_turn(self, batch: Batch, memory: GatedMemory) -> int:
        """Let each sequence take its blocks in turn; where there are none, a victim loses its own.

        A sequence that is its own victim ends the step for the sequences behind it. A decode that
        has fewer rows than it has drafts for verifies them outside the lockstep. Returns the rows
        that are left.
        """
        running, decodes = self.prompts, self.decodes
        if self.names_answers:
            self.commit_answers(0)
        drafting = set(decodes) if self.drafts else set()
        for seq in list(decodes):
            decodes.leave(seq)
            running.append(seq)
        running.sort(key=_ADMISSION)
        rows: dict[Sequence, int] = {}
        left = self.budget
        while len(rows) < len(running) and left > 0:
            seq = running[len(rows)]
            tokens = min(decodes.rows, left) if seq in drafting else self.rows_of(seq, left)
            if tokens < decodes.rows and seq in drafting and not decodes.prompt_token:
                break  # a block is computed whole
            victim: Sequence | None = None
            while victim is not seq and not memory.extend(seq, self.end_of(seq, tokens)):
                victim = self.victim(running, decodes)
                self.preempt(victim, batch)
                left += rows.pop(victim, 0)
                drafting.discard(victim)
            if victim is seq:
                break
            self.commit(seq, seq.base_computed_tokens + tokens)
            rows[seq] = tokens
            left -= tokens
        self.paused = drafting.difference(rows)
        drafting = {seq for seq in drafting if rows.get(seq) == decodes.rows}
        for seq, tokens in rows.items():
            if seq in drafting if self.drafts else self.is_decode(seq):
                running.remove(seq)
                decodes.join(seq)
            else:
                self.add_rows(batch, seq, tokens)
        if decodes.size:
            decodes.granted_step = decodes.steps + 1
        return left

    def victim(self, prompts: list[Sequence], decodes: Reversible[Sequence]) -> Sequence:
        """Return the sequence to preempt: of equal priorities the one that arrived last.

        Of the answers to one prompt, the decode that joined first.
        """
        if self.config.victim == "lowest-priority":
            running: list[Sequence] = [*self.decodes, *prompts]
            return min(running, key=_rank)
        return super().victim(prompts, decodes)

    def is_decode(self, seq: Sequence) -> bool:
        """Return whether a sequence computes one row and has its first token."""
        if seq.lockstep is not None:
            return True
        return seq.base_generated_tokens > 0 and seq.missing_tokens == 1

    def reserve(self, seq: Sequence, cached: int, left: int) -> bool:
        """Take memory for the first chunk; False without room for it, or for the whole prompt."""
        total = seq.prompt_tokens + seq.base_generated_tokens
        padding = self.padding(seq, cached) if self.drafts else 0
        if padding >= left:
            return False
        if self.gated_memory is None:
            return super().reserve(seq, cached, left)
        end = min(total, cached + min(left, self.most_rows)) + padding + self.draft_slots
        whole = total if self.gates_whole_prompts else 0
        return self.gated_memory.reserve_part(seq, end, max(end, whole))

    def admit(self, batch: Batch, left: int, now_s: float) -> None:
        """Admit what waits, as far as slots, the rows left of the budget and memory allow."""
        if self.drafts and all(entry.seq.finished for entry in batch.chunks):
            self.pads_from = 0 if self.decodes.size or batch.chunks else 1
        super().admit(batch, left, now_s)
        self.pads_from = _NEVER

    def padding(self, seq: Sequence, computed: int) -> int:
        """Return the rows that are computed in vain beside the one that a newcomer lacks.

        So that all rows of a step without prompts are as many for each sequence (CUDA graphs).
        """
        drafts = self.config.draft_rows
        rows = seq.prompt_tokens + seq.base_generated_tokens - computed
        if computed < self.pads_from or rows > 1:
            return 0
        return drafts if computed + drafts + 2 <= self.config.max_model_len else 0

    def compute(self, seq: Sequence, left: int, batch: Batch) -> int:
        """Compute the next part of a prompt, at most ``left`` rows; return how many they are."""
        if left <= 0:
            return 0
        padding = self.padding(seq, seq.base_computed_tokens) if self.drafts else 0
        rows = self.rows_of(seq, left) + padding
        if self.gated_memory is not None:
            room = self.gated_memory.extend(seq, self.end_of(seq, rows))
            assert room, "there was room for every running sequence"
        self.commit(seq, seq.base_computed_tokens + rows)
        self.add_rows(batch, seq, rows)
        return rows

    def enqueue(self, seq: Sequence) -> None:
        """Let a sequence wait, after all that came before it."""
        if seq.names_answer:
            self.names_answers = self.shares_prefixes
        super().enqueue(seq)

    def end(self, ended: list[Sequence]) -> list[Sequence]:
        """Give back what sequences held whose last token is out, in order of admission."""
        if self.names_answers:
            self.commit_answers(0)
        return super().end(sorted(ended, key=_ADMISSION))

    def commit_answers(self, coming: int) -> None:
        """Let others find the blocks that decodes have filled, and will with ``coming`` tokens.

        Of equal blocks the one that was filled first is found: the longest come first, of equals
        the one admitted first.
        """
        block, filled = self.memory.block_tokens, list[tuple[int, Sequence]]()
        for seq in self.decodes:
            tokens = seq.computed_tokens if coming > 0 else self.decodes.known_tokens(seq)
            tokens += coming
            if seq.names_answer and tokens // block > seq.held.keyed_blocks:
                filled.append((tokens, seq))
        for tokens, seq in sorted(filled, key=lambda each: (-each[0], each[1].admission_number)):
            self.memory.commit(seq, tokens)
