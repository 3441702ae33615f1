"""Decodes that advance together: one counter stands for all of them.

A step changes no member. A sequence remembers the step at which it joined, its progress is a
difference; the steps at which members end lie in a heap; the blocks that members will need follow
from how many stand at each place within a block.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, NamedTuple, Protocol

from servetwin.policies.sequence import DecodeGroup, Sequence
from servetwin.workloads.native_class import mypyc_attr

if TYPE_CHECKING:
    from servetwin.policies.capped_contexts import CappedContexts


class LastStep(NamedTuple):
    """The rows of a sequence in a step, and the tokens that came out of them."""

    rows: int
    tokens: int


NO_STEP = LastStep(0, 0)
_PLACE_BITS = 32
# Masks the place in a ``pair``.
PLACES = (1 << _PLACE_BITS) - 1


class GrowingMemory(Protocol):
    """Where members take room for their next positions."""

    shares_prefixes: bool

    def grow(self, lockstep: "Lockstep", steps: int = 1) -> bool:
        """Take room for ``steps`` more positions of every member; False, unchanged, without it."""

    def repeatable_steps(self, lockstep: "Lockstep", limit: int) -> int:
        """Return how many more steps (at most ``limit``) ``grow`` would grant."""

    def commit(self, seq: Sequence, tokens: int) -> None:
        """Let others find the full blocks among the first ``tokens`` positions."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Lockstep(DecodeGroup):
    """Sequences of which each step yields one token; ``steps`` counts the steps so far.

    Of each member a step computes ``rows`` rows and uses ``reach`` positions behind the computed
    ones; ``prompt_token`` says whether the pass of a prompt yields a token.
    ``size`` is the number of members, ``context_tokens`` the sum of their computed tokens,
    ``granted_step`` the step up to which they have KV memory (where they grow on demand).
    ``stopped`` collects members that an engine ends early; ``advance`` takes them out.
    With a ``memory`` they grow in it, block after block; without one they hold all they need.
    """

    __slots__ = (
        "_block", "_capped", "_ends", "_joins", "_leads", "_members", "_memory", "_past_ends",
        "_places", "context_tokens", "prompt_token", "reach", "rows", "size",
    )  # fmt: skip

    def __init__(self, block_tokens: int, memory: GrowingMemory | None = None) -> None:
        super().__init__()
        self._memory = memory
        self.size = 0
        self.rows = self.reach = 1
        self.prompt_token = True
        self.context_tokens = 0
        self._block = block_tokens
        self._members: dict[int, Sequence] = {}  # in the order of joining, by number of the join
        self._joins = 0
        # How many of ``_ends`` are of sequences that have left.
        self._past_ends = 0
        # Heap of (last step, join) of members, each pair as one number (``pair``).
        self._ends: list[int] = []
        # Heap of (steps - computed, join), once the longest member was asked for.
        self._leads: list[int] | None = None
        # By limit, as far as ``seen_tokens`` was called with it.
        self._capped: dict[int, CappedContexts] = {}
        # Members by (computed - steps) modulo the block.
        self._places = [0] * block_tokens

    def __iter__(self) -> Iterator[Sequence]:
        """Yield the members in the order of joining."""
        return iter(self._members.values())

    def __reversed__(self) -> Iterator[Sequence]:
        """Yield the members, the newest first."""
        return reversed(self._members.values())

    def join(self, seq: Sequence) -> None:
        """Add a sequence that has its first token, or its memory again."""
        steps, computed = self.steps, seq.base_computed_tokens
        self.enrol(seq)
        heappush(self._ends, pair(steps + seq.max_tokens - seq.base_generated_tokens, seq.join))
        self.context_tokens += computed
        if self._leads is not None:
            heappush(self._leads, pair(steps - computed, seq.join))
        if self._capped:
            for capped in self._capped.values():
                capped.join(steps, computed + 1)
        self._places[(computed - steps) % self._block] += 1

    def enrol(self, seq: Sequence) -> None:
        """Number a new member, from whose counters on it advances."""
        self._joins = seq.join = self._joins + 1
        self._members[seq.join] = seq
        self.size += 1
        seq.lockstep = self
        seq.joined_step = self.steps

    def leave(self, seq: Sequence) -> None:
        """Take a member out; its counters stay as they are."""
        self._past_ends += 1
        self._take_out(seq)

    def grow(self) -> bool:
        """Take room for the next position of every member; False, unchanged, without room."""
        return self._memory is None or not self.size or self._memory.grow(self, 1)

    def grant(self, blocks: int) -> None:
        """Note that members took so many blocks up to ``granted_step``; verified drafts need it."""

    def repeats(self) -> int:
        """Return the steps until a member ends or lacks room, with the one that was granted."""
        limit, memory = self.steps_to_end(), self._memory
        if limit == 1 or memory is None:
            return limit
        granted = self.granted_step - self.steps
        return granted + memory.repeatable_steps(self, limit - granted)

    def advance(self, steps: int) -> list[Sequence]:
        """Advance every member by ``steps`` tokens; take out and return the members that ended."""
        if steps > 1 and self._memory is not None:
            room = self._memory.grow(self, self.steps + steps - self.granted_step)
            assert room, "repeatable_steps promised room that is not there"
        self.context_tokens += steps * self.size
        self.steps = now = self.steps + steps
        ended = []
        ends, after = self._ends, pair(now + 1, 0)
        while ends and ends[0] < after:
            seq = self._members.get(heappop(ends) & PLACES)
            if seq is not None:
                self._take_out(seq)
                ended.append(seq)
            else:
                self._past_ends -= 1
        if self.stopped:
            ended += self._take_stopped()
        return ended

    def steps_to_end(self) -> int:
        """Return the steps until the next member ends; at least one member is needed."""
        ends = self._ends
        while self._past_ends and ends[0] & PLACES not in self._members:
            heappop(ends)
            self._past_ends -= 1
        return (ends[0] >> _PLACE_BITS) - self.steps

    def longest_tokens(self) -> int:
        """Return the most computed tokens of a member; at least one member is needed."""
        leads, members = self._leads, self._members
        if leads is None:
            now = self.steps
            leads = [pair(now - seq.computed_tokens, join) for join, seq in members.items()]
            heapify(leads)
            self._leads = leads
        while True:
            if leads[0] & PLACES in members:
                return self.steps - (leads[0] >> _PLACE_BITS)
            heappop(leads)

    def known_tokens(self, seq: Sequence) -> int:
        """Return the computed positions of a member that the last decision knew to be right."""
        return seq.computed_tokens

    def seen_tokens(self, limit: int, after: int = 0) -> tuple[int, int, int]:
        """Return what members see of contexts, own positions included, each at most ``limit``.

        As (tokens, growth per step, steps that grow so), ``after`` steps from now.
        """
        capped = self._capped.get(limit)
        if capped is None:
            from servetwin.policies.capped_contexts import CappedContexts

            capped = self._capped[limit] = CappedContexts(limit)
            for seq in self:
                capped.join(self.steps, seq.computed_tokens + 1)
        return capped.line(self.steps, self.size, after)

    def verified_pairs(self) -> int:
        """Return the pairs of queries and keys of members that verify drafts."""
        return self.rows * self.context_tokens + (self.size * self.rows * (self.rows + 1) >> 1)

    def new_blocks(self, steps: int) -> int:
        """Return the blocks that members need for ``steps`` positions beyond the granted."""
        block, places = self._block, self._places
        place = -self.granted_step % block  # whose members stand at the start of a block
        if steps == 1:
            return places[place]
        needed = 0
        if steps >= block:
            needed = steps // block * self.size
            steps %= block
        after = place + 1
        if steps <= after:
            return needed + sum(places[after - steps : after])
        return needed + sum(places[:after]) + sum(places[after - steps :])

    def last_begins_block(self, steps: int) -> bool:
        """Return whether position ``steps`` beyond the granted is the first of a block, of the
        member that joined last."""
        seq = next(reversed(self._members.values()))
        granted_tokens = seq.computed_tokens + self.granted_step - self.steps
        return (granted_tokens + steps - 1) % self._block == 0

    def _take_out(self, seq: Sequence) -> None:
        del self._members[seq.join]
        self.size -= 1
        steps = self.steps
        done = steps - seq.joined_step if self.rows == 1 else self.advanced(seq)
        seq.lockstep = None
        seq.base_generated_tokens += done
        seq.base_computed_tokens = computed = seq.base_computed_tokens + done
        self.context_tokens -= computed
        self._places[(computed - steps) % self._block] -= 1
        if self._capped:
            for capped in self._capped.values():
                capped.leave(steps, computed + 1)

    def _take_stopped(self) -> list[Sequence]:
        taken = [seq for seq in self.stopped if seq.lockstep is self]
        self.stopped = []
        for seq in taken:
            self.leave(seq)
        return taken


def pair(time: int, place: int) -> int:
    """Return a number in the order of (time, place): a heap compares it faster than a tuple."""
    return (time << _PLACE_BITS) + place
