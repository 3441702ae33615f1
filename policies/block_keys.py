"""Names for prompt blocks: equal keys mean equal prompts up to and including the block.

The simulator derives them from the prefix ids of a trace, the engine from token ids. Both name the
same blocks alike or different, so both see the same prefix hits.
"""

import hashlib
from array import array
from collections.abc import Iterable
from itertools import count
from typing import Protocol

from workloads.request import Request

_BLOCK_INDEX_BITS = 24


class BlockKeys(Protocol):
    """Names the full prompt blocks of a request."""

    def of(self, request: Request) -> list[int]:
        """One key per full block of the prompt."""


class PrefixKeys:
    """Block keys of a trace's requests, at the block size of a KV memory.

    Block ``j`` ends inside the trace's block ``i``; as ids are chained, ``(id_i, j)`` names all
    that comes before. Blocks past the last id belong to one request and get a key of their own.
    Where the trace's block is longer than the memory's (512 against 16), two prompts that part
    inside a trace's block share nothing of it.
    """

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._private = count(1)

    def of(self, request: Request) -> list[int]:
        """One key per full block of the prompt."""
        full_blocks = request.prompt_tokens // self._block_tokens
        ids, id_tokens = request.prefix_block_ids, request.block_tokens
        if not ids or not id_tokens:
            return [-next(self._private) for _ in range(full_blocks)]
        size = self._block_tokens
        named = min(full_blocks, len(ids) * id_tokens // size)
        keys = [
            ids[(size * (j + 1) - 1) // id_tokens] << _BLOCK_INDEX_BITS | j for j in range(named)
        ]
        keys.extend(-next(self._private) for _ in range(full_blocks - named))
        return keys


def token_keys(token_ids: Iterable[int], block_tokens: int) -> list[int]:
    """Chained hashes of the full blocks of ``token_ids`` (as vLLM does)."""
    tokens = array("q", token_ids).tobytes()
    size = 8 * block_tokens
    keys = []
    chain = hashlib.sha256()
    for start in range(0, len(tokens) - size + 1, size):
        chain.update(tokens[start : start + size])
        keys.append(int.from_bytes(chain.digest()[:16]))
    return keys
