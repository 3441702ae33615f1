"""Prefix sharing by chained block hashes, with least-recently-used eviction.

A block that is full of prompt tokens is remembered by its key. While a sequence holds it, it is
counted; afterwards it stays findable until its room is needed. Blocks of generated tokens are not
remembered: a trace names the blocks of prompts only, and the simulator must see the same hits as
the engine.
"""

from itertools import islice

from policies.sequence import Sequence


class HashPrefixCache:
    """Which block holds which prefix, and which of them nobody uses (oldest first)."""

    def __init__(self) -> None:
        self._block_of: dict[int, int] = {}
        self._key_of: dict[int, int] = {}
        self._idle: dict[int, None] = {}  # insertion order = order of last use

    def match(self, keys: list[int], limit: int) -> list[int]:
        """Blocks that hold the longest known prefix of ``keys``, at most ``limit``."""
        found = []
        for key in islice(keys, limit):
            block = self._block_of.get(key)
            if block is None:
                break
            found.append(block)
        return found

    def insert(self, key: int, block: int) -> None:
        """Remember ``block`` by ``key``; the first block with a key keeps it."""
        if key not in self._block_of and block not in self._key_of:
            self._block_of[key] = block
            self._key_of[block] = key

    def use(self, block: int) -> None:
        """A sequence holds the block again: it cannot be evicted."""
        self._idle.pop(block, None)

    def retire(self, block: int) -> bool:
        """Nobody holds the block any more; False when it is not a remembered one."""
        if block not in self._key_of:
            return False
        self._idle[block] = None
        return True

    def is_idle(self, block: int) -> bool:
        """Whether the block could be evicted."""
        return block in self._idle

    def idle_blocks(self) -> int:
        """Blocks that could be evicted."""
        return len(self._idle)

    def evict(self) -> int:
        """Forget the block that has been idle for longest, and hand it out."""
        block = next(iter(self._idle))
        del self._idle[block]
        del self._block_of[self._key_of.pop(block)]
        return block


def shareable_blocks(seq: Sequence, block_tokens: int) -> int:
    """Leading blocks that a hit may cover: the last prompt token is always computed anew."""
    return min(len(seq.block_keys), (seq.prompt_tokens - 1) // block_tokens)
