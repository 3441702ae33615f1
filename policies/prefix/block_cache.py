"""Blocks found by what they name, one by one, in groups of layers over one pool.

As in vLLM's block pool (0.32: v1/core/block_pool.py): of several blocks of one name the oldest is
found, and of those that no sequence holds the one that has been idle longest goes first.
"""

from collections import OrderedDict

from servetwin.policies.sequence import Sequence

_PLACE_BITS = 24


class BlockCache:
    """Knows the filled blocks of each group by name, and which of them are ``idle``."""

    def __init__(self, groups: int) -> None:
        # The blocks that no sequence holds, the one that goes first in front.
        self.idle: OrderedDict[int, None] = OrderedDict()
        # (group, name) of each block.
        self.names: dict[int, tuple[int, int]] = {}
        self._blocks: list[dict[int, list[int]]] = [{} for _ in range(groups)]

    def has(self, groups: list[int], name: int) -> bool:
        """Return whether each of the groups has a block of the name."""
        return all(name in self._blocks[group] for group in groups)

    def find(self, group: int, name: int) -> int:
        """Return the oldest block of a name that the group has."""
        return self._blocks[group][name][0]

    def add(self, group: int, name: int, block: int) -> None:
        """Name a filled block."""
        self.names[block] = group, name
        self._blocks[group].setdefault(name, []).append(block)

    def evict(self) -> int:
        """Forget the block that has been idle longest, and return it."""
        block, _ = self.idle.popitem(last=False)
        group, name = self.names.pop(block)
        blocks = self._blocks[group]
        blocks[name].remove(block)
        if not blocks[name]:
            del blocks[name]
        return block


def block_names(seq: Sequence, start: int, end: int, block_tokens: int) -> list[int]:
    """Return the names of the blocks at places ``start`` to ``end`` - 1 of a sequence.

    Blocks that no key names belong to their request alone.
    """
    keys, size = seq.block_keys, seq.key_blocks
    tokens = seq.prompt_tokens + (seq.max_tokens if seq.names_answer else 0)
    named = min(len(keys) * size, tokens // block_tokens)
    return [
        ((keys[place // size] if place < named else seq.own_key) << _PLACE_BITS) + place
        for place in range(start, end)
    ]
