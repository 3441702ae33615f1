"""The ids of a prompt's blocks, held as what the prompt adds to the one before.

Ids are chained: each stands for the whole prompt up to and including its block. The prompts of a
session grow, so one chain has the ids of all of them, and each prompt is the beginning of it. A
turn costs what it adds, however long its prompt is.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Union, overload

from servetwin.workloads.native_class import IntSequence

# Ids of blocks; a tuple where they are few, or have more than 64 bits.
Ids = Union[tuple[int, ...], "BlockIds"]


class BlockIds(IntSequence):
    """The first ids of a chain, each of them ``shift`` higher; equal to a tuple of them."""

    __slots__ = ("_length", "_shift", "chain")

    def __init__(self, chain: "array[int]", length: int, shift: int = 0) -> None:
        # All ids, without the shift; longer prompts may have added to them.
        self.chain = chain
        self._length, self._shift = length, shift

    @classmethod
    def of(cls, ids: Iterable[int]) -> "BlockIds":
        """Begin a chain. Raises OverflowError for an id of more than 64 bits."""
        chain = array("q", ids)
        return cls(chain, len(chain))

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> Ids: ...
    def __getitem__(self, place: int | slice) -> int | Ids:
        if not isinstance(place, slice):
            if 0 <= place < self._length:
                return self.chain[place] + self._shift
            if not -self._length <= place < 0:
                raise IndexError(place)
            return self.chain[place + self._length] + self._shift
        start, stop, step = place.indices(self._length)
        if not start and step == 1:
            return BlockIds(self.chain, stop, self._shift)
        if step < 0:
            return tuple(self.plain()[place])
        return tuple(self._shifted(self.chain[start:stop:step]))

    def __iter__(self) -> Iterator[int]:
        return iter(self.plain())

    def __reversed__(self) -> Iterator[int]:
        return reversed(tuple(self))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, tuple):
            return tuple(self) == other
        if not isinstance(other, BlockIds) or len(self) != len(other):
            return False
        if self._shift != other._shift:
            return tuple(self) == tuple(other)
        is_same = self.chain is other.chain
        return is_same or self.chain[: self._length] == other.chain[: self._length]

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __reduce__(self) -> tuple[object, ...]:  # for pure Python, and for a compiled core
        return BlockIds, (self.chain, self._length, self._shift)

    def __add__(self, more: Iterable[int]) -> "BlockIds":
        """Return these ids and more, on the same chain where it goes on with them.

        Threads may add to a chain at the same time: each sees what the other has added.
        """
        added = array("q", [each - self._shift for each in more] if self._shift else more)
        chain, end = self.chain, self._length + len(added)
        if len(chain) == self._length:
            chain.extend(added)
        if chain[self._length : end] != added:
            chain = chain[: self._length] + added
        return BlockIds(chain, end, self._shift)

    def __radd__(self, before: tuple[int, ...]) -> tuple[int, ...]:
        return (*before, *self)

    def shifted(self, by: int) -> "BlockIds":
        """Return the ids of a prompt of the same blocks that shares none with this one."""
        return BlockIds(self.chain, self._length, self._shift + by)

    def plain(self) -> Sequence[int]:
        """Return a copy of the ids, in which they are found faster."""
        return self._shifted(self.chain[: self._length])

    def _shifted(self, ids: "array[int]") -> Sequence[int]:
        return [each + self._shift for each in ids] if self._shift else ids


class Prefixes:
    """The prompts so far, each by the first of its ids that those before it have not.

    Ids are chained, so prompts with equal ids at a place are equal up to it. A session costs one
    entry, however long its prompts grow, and two more where another parts from it.
    """

    def __init__(self) -> None:
        self.prompts: dict[int, Ids] = {}

    def find(self, ids: Ids) -> tuple[int, Ids, int]:
        """Return how many leading ids are known, a prompt with them, and the key of a longer one.

        ``prompts`` has it under this key if it is to be known.
        """
        place, size = 0, len(ids)
        prompt: Ids = ()
        key = ids[0] if size else 0
        while place < size and (longer := self.prompts.get(first := ids[place])) is not None:
            key, prompt = first, longer
            place = max(place + 1, _parting(prompt, ids, place))
            if place < min(size, len(prompt)):
                self.prompts[prompt[place]] = prompt
                prompt = self.prompts[key] = prompt[:place]
        return place, prompt, key


def _parting(prompt: Ids, ids: Ids, place: int) -> int:
    """Return the first place at which two prompts differ, which are equal at ``place``."""
    end = min(len(prompt), len(ids))
    if prompt[end - 1] == ids[end - 1]:
        return end
    places = range(place + 1, end)
    return bisect_left(places, True, key=lambda each: prompt[each] != ids[each]) + place + 1


class Chains:
    """The chains of a trace: finds the one that a prompt is the beginning of, or goes on with."""

    def __init__(self) -> None:
        self._prefixes = Prefixes()

    def of(self, ids: Iterable[int]) -> Ids:
        """Return the ids of a prompt on a chain; as a tuple where one has more than 64 bits."""
        try:
            given = BlockIds.of(ids)
        except OverflowError:
            return tuple(ids)
        known, prompt, key = self._prefixes.find(given)
        whole = given
        if isinstance(prompt, BlockIds):
            begun = BlockIds(prompt.chain, known)
            if begun == given[:known]:  # else they are not chained
                whole = begun + given.chain[known:]
        if known < len(given):
            self._prefixes.prompts[key] = whole
        return whole


def highest(prompts: Sequence[Ids]) -> int:
    """Return the highest id; -1 without any. Every chain is read once."""
    chains = {id(each.chain): each.chain for each in prompts if isinstance(each, BlockIds)}
    others = (each for each in prompts if not isinstance(each, BlockIds))
    return max((max(each, default=-1) for each in (*chains.values(), *others)), default=-1)
