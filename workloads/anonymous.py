"""Requests without texts and names: salted hashes say which of them are equal, and nothing else.

The salt is drawn at random and never written, so that nobody can confirm a guess of a text.
"""

import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from servetwin.workloads.readers.prompt_fields import BYTES_PER_TOKEN
from servetwin.workloads.request import BLOCK_TOKENS, PromptContent, Request
from servetwin.workloads.trace import Trace

_BLOCK_BYTES = BLOCK_TOKENS * BYTES_PER_TOKEN
_MODALITIES = ("images", "audio", "video")
NOTE = "anonymised: texts as salted hashes of 64 bytes, which count as blocks of 16 tokens"


class Anonymiser:
    """Hashes what one trace says; two anonymisers have nothing in common.

    Blocks are *chained*: their ids are equal where the whole prompts up to their ends are.
    """

    def __init__(self) -> None:
        self._salt = secrets.token_bytes(32)

    def name(self, text: str) -> str:
        """Return what stands for an id, a model or a tenant: 16 hexadecimal digits."""
        return self._hash(b"name" + text.encode(errors="surrogatepass")).hex()

    def block_ids(self, parts: Iterable[Any], prompt_tokens: int) -> tuple[int, ...]:
        """Return the ids of the blocks that ``parts`` (JSON values) fill, one after the other.

        There are no more than the full blocks of ``prompt_tokens``.
        """
        data, ids, chain = bytearray(), list[int](), b"\0" * 8
        for part in parts:
            data += json.dumps(part, sort_keys=True).encode() + b"\n"
        most = min(len(data) // _BLOCK_BYTES, prompt_tokens // BLOCK_TOKENS)
        for at in range(0, most * _BLOCK_BYTES, _BLOCK_BYTES):
            chain = self._hash(chain + data[at : at + _BLOCK_BYTES])
            ids.append(int.from_bytes(chain) >> 1)
        return tuple(ids)

    def trace(self, trace: Trace) -> Trace:
        """Return a trace without its texts, names and headers; notes and the source go too."""
        requests = [self.request(number, request) for number, request in enumerate(trace)]
        return replace(trace, requests=tuple(requests), source="anonymous", notes=(NOTE,))

    def request(self, number: int, request: Request) -> Request:
        """Return request ``number`` without what only its owner should know."""
        ids, size = self._named_blocks(request)
        return replace(
            request,
            request_id=self.name(request.request_id),
            parent_ids=tuple(map(self.name, request.parent_ids)),
            model=self._optional(request.model),
            tenant=self._optional(request.tenant),
            session_id=self._optional(request.session_id),
            kind=self._optional(request.kind),
            prefix_block_ids=ids,
            answer_block_ids=tuple(map(self._block, request.answer_block_ids)),
            block_tokens=size,
            modal=_known(request.modal),
            source_line=number + 1,
            prompt=None,
            answer=None,
            headers=None,
        )

    def _named_blocks(self, request: Request) -> tuple[tuple[int, ...], int | None]:
        if request.prefix_block_ids or request.prompt is None:
            return tuple(map(self._block, request.prefix_block_ids)), request.block_tokens
        return self.block_ids(prompt_parts(request.prompt), request.prompt_tokens), BLOCK_TOKENS

    def _optional(self, text: str | None) -> str | None:
        return None if text is None else self.name(text)

    def _block(self, block_id: int) -> int:
        return int.from_bytes(self._hash(b"block%d" % block_id)) >> 1

    def _hash(self, data: bytes | bytearray) -> bytes:
        return blake2b(data, digest_size=8, key=self._salt).digest()


def _known(modal: Mapping[str, int] | None) -> Mapping[str, int] | None:
    return modal and {kind: modal[kind] for kind in _MODALITIES if kind in modal}


def prompt_parts(prompt: PromptContent) -> Iterable[str | Mapping[str, Any]]:
    """Return what a prompt consists of: its text, or its messages."""
    return (prompt,) if isinstance(prompt, str) else prompt
