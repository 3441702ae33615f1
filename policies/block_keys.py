"""Names for prompt blocks: equal keys mean equal prompts up to and including the block.

The simulator derives them from the prefix ids of a trace, the engine from token ids. Both name the
same blocks alike or different, so both see the same prefix hits.
"""

import hashlib
from array import array
from collections.abc import Iterable
from typing import Protocol
from zlib import crc32

from servetwin.policies.sequence import Keys
from servetwin.workloads.request import Request

_BLOCK_INDEX_BITS = 24
# Above the bits of all keys.
_ADAPTER_SHIFT = 128


class BlockKeys(Protocol):
    """Names the prompt blocks of a request."""

    def of(self, request: Request) -> tuple[Keys, int]:
        """Return (chained keys of the leading blocks, blocks per key); prompts may end unnamed."""


class PrefixKeys:
    """Block keys of a trace's requests, at the block size of a KV memory.

    As ids are chained, one id names all blocks within it: where the trace's block is a multiple of
    the memory's (512 against 16), the ids are the keys. Two prompts that part inside a trace's
    block then share nothing of it. Elsewhere each block gets a key from the id that it ends in.
    Blocks past the last id belong to one request and have no key. Ids of the answer follow the
    ids of the prompt. With ``by_model``, prompts for different adapters share nothing.
    """

    def __init__(self, block_tokens: int, by_model: bool = False) -> None:
        self.block_tokens = block_tokens
        self._by_model = by_model

    def of(self, request: Request) -> tuple[Keys, int]:
        """Return (chained keys of the leading blocks, blocks per key); prompts may end unnamed."""
        keys, blocks = self._of_prompt(request)
        if not self._by_model or request.model is None:
            return keys, blocks
        adapter = crc32(request.model.encode()) + 1 << _ADAPTER_SHIFT
        return [key + adapter for key in keys], blocks

    def _of_prompt(self, request: Request) -> tuple[Keys, int]:
        ids, id_tokens, size = request.prefix_block_ids, request.block_tokens, self.block_tokens
        named_tokens = request.prompt_tokens
        if request.answer_block_ids:
            ids += request.answer_block_ids
            named_tokens += request.output_tokens
        if not ids or not id_tokens:
            return (), 1
        if id_tokens % size == 0:
            return ids, id_tokens // size
        blocks = min(named_tokens, len(ids) * id_tokens) // size
        ends = (size * (j + 1) - 1 for j in range(blocks))
        return [ids[end // id_tokens] << _BLOCK_INDEX_BITS | end // size for end in ends], 1


def token_keys(token_ids: Iterable[int], block_tokens: int, salt: str = "") -> list[int]:
    """Return chained hashes of the full blocks of ``token_ids`` (as vLLM does).

    Prompts of different ``salt`` share nothing.
    """
    tokens = array("q", token_ids).tobytes()
    size = 8 * block_tokens
    keys = []
    chain = hashlib.sha256(salt.encode())
    for start in range(0, len(tokens) - size + 1, size):
        chain.update(tokens[start : start + size])
        keys.append(int.from_bytes(chain.digest()[:16]))
    return keys
