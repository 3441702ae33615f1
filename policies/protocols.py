"""The two interfaces between a server and its policies."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from servetwin.policies.batch import Batch
from servetwin.policies.lockstep import Lockstep
from servetwin.policies.sequence import Sequence

# (running sequences, waiting sequences, KV tokens that could be given out now).
Load = tuple[int, int, int]

# How an executor finds a position: through ``Sequence.blocks`` or ``Sequence.region_start``.
KVLayout = Literal["paged", "contiguous"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a sequence was not taken in.

    ``too_long``: it can never fit the KV memory or the model's length; retrying is pointless.
    ``queue_full``: the waiting queue is at its bound; retrying later may succeed.
    ``too_late``: it waited longer than the TTFT that it was promised.
    ``unsupported``: the scheduler cannot do what the request needs.
    ``over_quota``: its tenant has used up its quota for now; only a gateway says so.
    """

    kind: Literal["too_long", "queue_full", "too_late", "unsupported", "over_quota"]
    reason: str


@dataclass(frozen=True, slots=True)
class KVUsage:
    """Where the KV memory's tokens are; the six parts after the capacity sum to it.

    A position shared by several sequences counts once.
    """

    capacity_tokens: int
    """The whole memory."""
    live_tokens: int
    """Hold keys and values of running sequences."""
    reserved_tokens: int
    """Are promised to positions that may still come."""
    internal_waste_tokens: int
    """Will never be used by the sequence that holds them."""
    external_waste_tokens: int
    """Are free, but in pieces too small for the next reservation."""
    cached_tokens: int
    """Hold a prefix that no running sequence uses."""
    free_tokens: int
    """Can be given to any sequence."""
    shared_tokens: int = 0
    """Are counted once above and used by several sequences."""

    @classmethod
    def of(
        cls, capacity: int, held: int, live: int, wasted: int, free: int, **others: int
    ) -> "KVUsage":
        """Return the use of a memory whose sequences hold ``held`` tokens, ``wasted`` for good.

        ``others`` are the external waste and the cached and shared tokens, each 0 by default.
        """
        parts = {"external_waste_tokens": 0, "cached_tokens": 0, **others}
        return cls(capacity, live, held - live - wasted, wasted, free_tokens=free, **parts)


class AdmittingMemory(Protocol):
    """What takes sequences in: a KV memory, or a rule that asks one for more at once."""

    def refusal(self, seq: Sequence) -> str | None:
        """Return why ``seq`` can never be held, even alone; None where it can."""

    def reserve(self, seq: Sequence, tokens: int) -> bool:
        """Take in a sequence that holds nothing, with room for ``tokens`` positions in all.

        It takes its cached prefix with it. False, and nothing changed, without room.
        """

    def fork(self, seq: Sequence, child: Sequence, tokens: int) -> bool:
        """Share the full blocks of ``seq`` with ``child``, copying a partly filled one.

        ``child`` then has room for ``tokens`` positions in all. False, and nothing changed, without
        room for the copy or where nothing can be shared.
        """


class KVMemory(AdmittingMemory, Protocol):
    """Owns KV space, in blocks or contiguous regions. Decides nothing about time.

    Built from a ``PolicyConfig`` alone: ``MyMemory(config)``.
    """

    layout: KVLayout
    block_tokens: int
    capacity_tokens: int
    shares_prefixes: bool

    def cached_prefix(self, seq: Sequence) -> int:
        """Return the leading prompt tokens that are cached already; at most prompt - 1."""

    def grow(self, lockstep: Lockstep, steps: int = 1) -> bool:
        """Take room for ``steps`` more positions of every member; False, unchanged, without it."""

    def repeatable_steps(self, lockstep: Lockstep, limit: int) -> int:
        """Return how many more steps (at most ``limit``) ``grow`` would grant."""

    def commit(self, seq: Sequence, tokens: int) -> None:
        """Declare that the step being scheduled fills the first ``tokens`` positions."""

    def release(self, seq: Sequence) -> None:
        """Give back all that ``seq`` holds."""

    def table(self, seq: Sequence, tokens: int) -> list[int]:
        """Return the blocks of the first ``tokens`` positions, also kept in ``seq.blocks``."""

    def free_tokens(self) -> int:
        """Return the tokens that could be given out now, cached prefixes included."""

    def usage(self, seqs: Iterable[Sequence]) -> KVUsage:
        """Return where the memory is, given all sequences that hold any of it."""


@runtime_checkable
class CheckedMemory(Protocol):
    """A memory that can check its own invariants."""

    def check(self, seqs: Iterable[Sequence]) -> None:
        """Assert the invariants, given all sequences that hold any of it."""


@runtime_checkable
class CachingMemory(Protocol):
    """A memory that keeps prefixes which no sequence holds, and can forget them."""

    def forget_idle(self) -> None:
        """Forget every prefix that no sequence holds: one of them was never computed."""


@runtime_checkable
class ChunkMemory(Protocol):
    """A memory that can give a prompt its room chunk by chunk (``prompt_blocks: chunk``)."""

    def extend(self, seq: Sequence, tokens: int) -> bool:
        """Give a prompt in progress room for ``tokens`` positions in all; False without room."""


@runtime_checkable
class GatedMemory(ChunkMemory, Protocol):
    """A memory that can ask for more room at admission than the first chunk takes."""

    def reserve_part(self, seq: Sequence, tokens: int, fitting_tokens: int) -> bool:
        """Reserve as ``reserve`` does, but only with room for ``fitting_tokens`` positions."""

    def has_room(self, decodes: Lockstep, ends: list[tuple[Sequence, int]]) -> bool:
        """Return whether ``grow`` by a step and ``extend`` to each end would all be granted."""


class Scheduler(Protocol):
    """Decides what each step computes. Deterministic; knows no clock, no tensor, no future.

    Built from its memory and a ``PolicyConfig``: ``MyScheduler(memory, config)``.
    """

    memory: KVMemory

    def add(self, seq: Sequence) -> Refusal | None:
        """Queue a sequence, or return why it is refused."""

    def abort(self, request_id: str) -> Sequence | None:
        """Forget a sequence and free what it holds; None when it is not (or no longer) here."""

    def schedule(self, now_s: float) -> Batch | None:
        """Return the next step, or None when there is nothing to run yet."""

    def complete(self, batch: Batch, steps: int = 1) -> list[Sequence]:
        """Advance every sequence of a batch that ran ``steps`` times; return the finished."""

    def repeatable_steps(self, batch: Batch) -> int:
        """Return how often this very batch repeats if nothing arrives (at least 1)."""

    def changes_batch(self, seq: Sequence) -> bool:
        """Return whether ``seq``, just added, could change the batch of the next step."""

    def wake_s(self) -> float | None:
        """Return when ``schedule`` may return a batch although nothing arrives; None if never."""

    def load(self) -> Load:
        """Return (running sequences, waiting sequences, free KV tokens)."""

    def holders(self) -> list[Sequence]:
        """Return all sequences that hold KV memory, in no order."""

    def waiting(self) -> Iterable[Sequence]:
        """Return the waiting sequences, in no order."""

    @property
    def dropped(self) -> list[tuple[Sequence, Refusal]]:
        """Sequences that were given up while they waited; the reader empties the list."""


class WaitingQueue(Protocol):
    """Holds the waiting sequences. A preempted one keeps the place that its arrival gave it."""

    @property
    def size(self) -> int:
        """The number of waiting sequences."""

    def push(self, seq: Sequence) -> None:
        """Add a sequence, for the first time or after preemption."""

    def head(self) -> Sequence | None:
        """Return the sequence that is next; None where none waits."""

    def pop(self) -> Sequence:
        """Remove and return the sequence that is next."""

    def __iter__(self) -> Iterator[Sequence]:
        """Yield the waiting sequences, in no order."""

    def discard(self, seq: Sequence) -> None:
        """Remove a sequence, which must wait."""

    def served(self, seq: Sequence) -> None:
        """Learn that a popped sequence has ended."""
