"""Decodes that verify drafts together: one counter of passes stands for all of them.

A simulation sets once, after a member has joined, how many tokens come out of each of its passes.
So the end of a member is known, and so is a sum over the members for every pass to come: whatever
joins adds its numbers, and a run of passes reads one slice. An engine has no such schedule; it
sets after each pass what came out of it.

A pass takes room for all of its rows. Rejected ones leave it to those of the next, and a prefix
cache learns of what was accepted when the next pass is decided (vLLM V1). One that is decided ahead
does not know what comes of the pass before it, and takes room as if all of its rows were right.
"""

from collections.abc import Callable
from functools import partial
from heapq import heappush
from typing import NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from servetwin.policies.lockstep import NO_STEP, GrowingMemory, LastStep, Lockstep, pair
from servetwin.policies.sequence import Sequence
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.native_class import mypyc_attr

IntArray: TypeAlias = npt.NDArray[np.int64]
# Whole numbers of passes, from the first position of a member and its tokens before each pass.
OfPasses = Callable[[int, IntArray], IntArray]
# Sums kept at a time; the one that was asked for first is forgotten.
_MOST_SUMS = 12


@mypyc_attr(allow_interpreted_subclasses=True)
class DraftedDecodes(Lockstep):
    """Decodes that compute ``rows`` rows each in a pass: one of their own, the others of drafts.

    ``unjudged`` are members without a schedule of tokens. A simulator calls ``set_schedule`` for
    each before the step, once; an engine calls ``gained`` for each before every step is completed.
    ``began`` are members whose first token came out in the last pass, where that of the prompt
    yields none. Behind its rows each has ``slots`` positions for the keys of a drafter.
    Where steps are decided ``ahead``, ``unknown`` are the last steps of sequences of which the
    decision does not know: those that a scheduler notes, and of members that left or are unjudged.
    """

    __slots__ = (
        "_ahead", "_bases", "_begins", "_firsts", "_gained", "_gains", "_held_blocks", "_needed",
        "_pass_blocks", "_schedules", "_size", "_sums", "began", "unjudged", "unknown",
    )  # fmt: skip

    def __init__(
        self, rows: int, memory: GrowingMemory | None = None, size: int = 1, slots: int = 0,
        ahead: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(block_tokens=1, memory=memory)
        self.rows, self.reach = rows, rows + slots
        self._ahead = ahead
        self.unknown: dict[Sequence, LastStep] = {}
        # Tokens of a block.
        self._size = size
        # Blocks of all members, as far as they have been granted.
        self._held_blocks = 0
        self._pass_blocks: OfPasses = partial(_pass_blocks, self.reach, size)
        # Blocks of the members that have a schedule, in each pass.
        self._needed = PassSums()
        self.unjudged: list[Sequence] = []
        # Tokens of a member after 0, 1, 2, ... passes since it joined.
        self._schedules: dict[Sequence, IntArray] = {}
        # Positions behind its base at which each of these passes is taken to begin.
        self._begins: dict[Sequence, IntArray] = {}
        # Tokens of the running pass, of members of which nothing was foreseen.
        self._gains: dict[Sequence, int] = {}
        self.began: list[Sequence] = []
        # Members without a token, by the step that yields their first.
        self._firsts: dict[Sequence, int] = {}
        # Positions that the members had computed when they joined, or by their last gain.
        self._bases = 0
        # Tokens that came out since, of foreseen members.
        self._gained = PassSums()
        # By function, as far as they were asked for.
        self._sums: dict[OfPasses, PassSums] = {self._pass_blocks: self._needed}

    def join(self, seq: Sequence) -> None:
        """Add a sequence that has its first token, or its memory again."""
        self.enrol(seq)
        self._places[0] += 1
        self._bases += seq.base_computed_tokens
        self.context_tokens += seq.base_computed_tokens
        self._held_blocks += seq.held.blocks
        self.unjudged.append(seq)

    def set_schedule(self, seq: Sequence, tokens_by_pass: IntArray) -> None:
        """Set how many tokens a new member has after 0, 1, 2, ... passes, up to its end or beyond.

        What comes out beyond ``max_tokens`` is cut.
        """
        self.unjudged.remove(seq)
        self._schedules[seq] = self._begins[seq] = tokens_by_pass
        if self._ahead:
            held = seq.held.blocks * self._size - self.reach - seq.base_computed_tokens
            begins = np.concatenate(([self.overhang(seq)], tokens_by_pass[:-1] + self.rows))
            self._begins[seq] = np.maximum(begins, held)
        passes = _passes(seq, tokens_by_pass)
        heappush(self._ends, pair(self.steps + passes, seq.join))
        if not seq.base_generated_tokens:
            self._firsts[seq] = self.steps + int(tokens_by_pass.searchsorted(1))
        self._gained.add(self.steps, tokens_by_pass[:passes])
        for of_passes, sums in self._sums.items():
            sums.add(self.steps, of_passes(seq.base_computed_tokens, self._rest(seq, of_passes)))

    def gained(self, seq: Sequence, tokens: int) -> None:
        """Set how many tokens came out of the running pass of a member without a schedule.

        What comes out beyond ``max_tokens`` is cut.
        """
        if not 0 <= tokens <= self.rows:
            raise PolicyError(
                f"{tokens} tokens cannot come out of a pass of {self.rows} rows; it must be from "
                f"0 to {self.rows} (sequence {seq.request_id!r})"
            )
        self._gains[seq] = tokens

    def leave(self, seq: Sequence) -> None:
        """Take a member out before its end."""
        if seq in self.unjudged:
            self.unjudged.remove(seq)
            self._gains.pop(seq, None)
            self._past_ends -= 1  # it has no end among them
        else:
            self._firsts.pop(seq, None)
            self._gained.add(self.steps, -self._rest(seq))
            for of_passes, sums in self._sums.items():
                left = self._rest(seq, of_passes)
                sums.add(self.steps, -of_passes(seq.base_computed_tokens, left))
        super().leave(seq)

    def advance(self, steps: int) -> list[Sequence]:
        """Record ``steps`` passes; take out and return the members that ended."""
        gainers = self._take_gains(steps) if self.unjudged else None
        ended = super().advance(steps)
        if gainers:
            ended = gainers + ended
        if self._firsts or self.began:
            self.began = [seq for seq, step in self._firsts.items() if step <= self.steps]
            for seq in self.began:
                del self._firsts[seq]
        self.context_tokens = self._bases + self._gained.at(self.steps)
        return ended

    def steps_to_end(self) -> int:
        """Return the passes until a member ends or has its first token; one member is needed."""
        if self.unjudged:
            self._refuse()
        passes = super().steps_to_end()
        if self._firsts:
            passes = min(passes, min(self._firsts.values()) - self.steps)
        return passes

    def advanced(self, seq: Sequence) -> int:
        """Return the tokens of a member since it joined."""
        return self._tokens_after(seq, self.steps)

    def overhang(self, seq: Sequence) -> int:
        """Return the positions behind the computed ones that a decision takes to be computed."""
        last = self.unknown.get(seq, NO_STEP)
        return last.rows - last.tokens

    def grant(self, blocks: int) -> None:
        """Note that members took so many blocks up to ``granted_step``."""
        self._held_blocks += blocks
        for seq in self.unjudged:
            seq.held.blocks = self._unjudged_blocks(seq)

    def new_blocks(self, steps: int) -> int:
        """Return the blocks that members lack for ``steps`` passes beyond the granted ones."""
        needed = self._needed.at(self.granted_step + steps - 1)
        for seq in self.unjudged:
            needed += self._unjudged_blocks(seq)
        return needed - self._held_blocks

    def granted_tokens(self, seq: Sequence) -> int:
        """Return the positions for which a member has KV memory: as many as its last pass used."""
        if self.granted_step <= seq.joined_step or seq not in self._schedules:
            return seq.held.blocks * self._size
        return self.end_of_pass(seq)

    def before_pass(self, seq: Sequence) -> int:
        """Return the computed positions of a member that the last granted pass knew to be right."""
        tokens = -self.unknown.get(seq, NO_STEP).tokens
        if seq in self._schedules:
            tokens = self._tokens_after(seq, self.granted_step - 1 - self._ahead)
        return seq.base_computed_tokens + tokens

    def end_of_pass(self, seq: Sequence) -> int:
        """Return the positions for which the last granted pass of a member takes room."""
        begin = self.overhang(seq)
        if seq in self._begins:
            begin = int(self._begins[seq][self.granted_step - 1 - seq.joined_step])
        return seq.base_computed_tokens + begin + self.reach

    def known_tokens(self, seq: Sequence) -> int:
        """Return the computed positions of a member that the last decision knew to be right.

        Of one without a schedule they are told to the prefix cache pass by pass. Ahead, all known
        tokens count: the last of them was computed by a pass of which nothing is known yet.
        """
        if self.steps == seq.joined_step or seq not in self._schedules:
            return self._ahead * (seq.total_tokens - self.unknown.get(seq, NO_STEP).tokens)
        known = self._tokens_after(seq, self.steps - 1) + 1
        return seq.base_computed_tokens + min(known, self.advanced(seq))

    def coming(self, seq: Sequence, steps: int) -> int:
        """Return the tokens that come out of the next passes of a member."""
        if seq in self._gains:
            return min(self._gains[seq], seq.max_tokens - seq.base_generated_tokens)
        return self._tokens_after(seq, self.steps + steps) - self._tokens_after(seq, self.steps)

    def context_sums(self, steps: int) -> list[int]:
        """Return the computed tokens of all members at each of the next passes."""
        return [self._bases + gained for gained in self._gained.of(self.steps, steps)]

    def sums(self, of_passes: OfPasses, steps: int) -> list[int]:
        """Return the sums of ``of_passes`` over the members for each of the next passes.

        They are kept while members come and go, so functions are to be equal from call to call.
        """
        if of_passes not in self._sums:
            if len(self._sums) == _MOST_SUMS:
                del self._sums[next(each for each in self._sums if each is not self._pass_blocks)]
            sums = self._sums[of_passes] = PassSums()
            for seq in self._schedules:
                sums.add(self.steps, of_passes(seq.base_computed_tokens, self._rest(seq)))
        return self._sums[of_passes].of(self.steps, steps)

    def _take_gains(self, steps: int) -> list[Sequence]:
        """Advance the members that were not foreseen by a pass; take out and return the ended."""
        if steps != 1 or len(self._gains) != len(self.unjudged):
            self._refuse()
        ended = []
        for seq in self.unjudged:
            tokens = self.coming(seq, 1)
            if self._ahead:
                self.unknown[seq] = LastStep(self.rows, tokens)
            elif self._memory is not None:
                self._memory.commit(seq, seq.base_computed_tokens + min(tokens, 1))
            seq.base_computed_tokens += tokens
            seq.base_generated_tokens += tokens
            self._bases += tokens
            if seq.base_generated_tokens >= seq.max_tokens:
                ended.append(seq)
        self._gains.clear()
        for seq in ended:
            self.unjudged.remove(seq)
            self._take_out(seq)
        return ended

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self._size)

    def _unjudged_blocks(self, seq: Sequence) -> int:
        return max(seq.held.blocks, self._blocks(self.end_of_pass(seq)))

    def _tokens_after(self, seq: Sequence, step: int) -> int:
        tokens_by_pass = self._schedules.get(seq)
        if tokens_by_pass is None:
            return 0
        most = seq.max_tokens - seq.base_generated_tokens
        return min(most, int(tokens_by_pass[min(step - seq.joined_step, len(tokens_by_pass) - 1)]))

    def _rest(self, seq: Sequence, of_passes: OfPasses | None = None) -> IntArray:
        """Return the tokens of a member before each of the passes that it still has.

        For the function of their blocks, as the decisions take them to be.
        """
        passes = _passes(seq, self._schedules[seq])
        tokens = (self._begins if of_passes is self._pass_blocks else self._schedules)[seq]
        return tokens[self.steps - seq.joined_step : passes]

    def _take_out(self, seq: Sequence) -> None:
        if self._memory is not None:
            seq.held.blocks = self._blocks(self.granted_tokens(seq))
            self._held_blocks -= seq.held.blocks
            if self._memory.shares_prefixes and (known := self.known_tokens(seq)):
                self._memory.commit(seq, known - self._ahead)
        if self._ahead and seq in self._schedules and self.steps > seq.joined_step:
            tokens = self.advanced(seq) - self._tokens_after(seq, self.steps - 1)
            self.unknown[seq] = LastStep(self.rows, tokens)
        self._bases -= seq.base_computed_tokens
        super()._take_out(seq)
        self._schedules.pop(seq, None)
        self._begins.pop(seq, None)

    def _refuse(self) -> NoReturn:
        raise PolicyError(
            f"{self.size} sequences verified drafts, but it is said of "
            f"{self.size - len(self.unjudged) + len(self._gains)} how many tokens came out; the "
            "step loop must say it of each (in a simulation, a sim.step_times.acceptance.Verifier)"
        )


class PassSums:
    """Sums over the members of a group of whole numbers that differ from pass to pass."""

    __slots__ = ("_first", "_sums")

    def __init__(self) -> None:
        # The step of entry 0.
        self._first = 0
        self._sums: IntArray = np.zeros(256, np.int64)

    def add(self, step: int, numbers: IntArray) -> None:
        """Add the numbers of a member from ``step`` on; what was before is forgotten."""
        place = step - self._first
        end = place + len(numbers)
        if end > len(self._sums):
            kept = self._sums[place:]
            self._sums = np.zeros(2 * max(len(kept), len(numbers)), np.int64)
            self._sums[: len(kept)] = kept
            self._first, place, end = step, 0, len(numbers)
        self._sums[place:end] += numbers

    def at(self, step: int) -> int:
        """Return the sum of one step."""
        place = step - self._first
        return self._sums.item(place) if place < len(self._sums) else 0

    def of(self, step: int, steps: int) -> list[int]:
        """Return the sums of ``steps`` steps from ``step`` on, none beyond the end of a member."""
        place = step - self._first
        sums: list[int] = self._sums[place : place + steps].tolist()
        return sums


def _pass_blocks(reach: int, size: int, base: int, tokens: IntArray) -> IntArray:
    """Return the blocks that a member holds in each pass, by the tokens before it."""
    return (tokens + (base + reach + size - 1)) // size


def _passes(seq: Sequence, tokens_by_pass: IntArray) -> int:
    """Return the passes until ``max_tokens`` are out."""
    return int(tokens_by_pass.searchsorted(seq.max_tokens - seq.base_generated_tokens))
