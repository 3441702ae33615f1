"""Prompts for live replay: token ids or words that share exactly what the prefix ids share."""

import hashlib
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from servetwin.workloads.errors import TraceError
from servetwin.workloads.request import Request

FIRST_ID = 259
"""Below are 256 bytes and three special tokens of the bundled engine's vocabulary."""

WORDS = tuple(Path(__file__).with_name("words.txt").read_text(encoding="ascii").split())
"""Common words: one token each in most tokenizers."""

_WORDS = np.array(WORDS, dtype=object)
_UINT64 = 2**64 - 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)

Hashes = NDArray[np.uint64]


def prompt_token_ids(
    request: Request, vocab_size: int, first_id: int = FIRST_ID, salt: str = ""
) -> list[int]:
    """Return ``prompt_tokens`` token ids in [first_id, vocab_size), the same in every process.

    Each prefix id gives one run of ``block_tokens`` ids, drawn from the id alone; tokens past the
    ids are drawn from the request_id. So two prompts begin alike as far as their prefix ids agree,
    and there differ but for chance (1 in vocab_size - first_id per token). Another ``salt`` gives
    other tokens with the same sharing, for loads that a server's prefix cache must not know.
    """
    if vocab_size <= first_id:
        raise TraceError(f"a vocabulary of {vocab_size} has no ids from {first_id} on")
    ids = _hashes(request, salt) % np.uint64(vocab_size - first_id)
    token_ids: list[int] = (ids.astype(np.int64) + first_id).tolist()
    return token_ids


def prompt_text(request: Request, salt: str = "") -> str:
    """Return ``prompt_tokens`` common words: for endpoints that take text but no token ids."""
    choices = _hashes(request, salt) % np.uint64(len(WORDS))
    return " ".join(_WORDS[choices.astype(np.int64)].tolist())


def _hashes(request: Request, salt: str) -> Hashes:
    """Hash each prompt token: (prefix id, offset in its block), then the request."""
    block_tokens = request.block_tokens or 0
    known = min(request.prompt_tokens, len(request.prefix_block_ids) * block_tokens)
    seeds = np.full(request.prompt_tokens, _seed(request.request_id), np.uint64)
    offsets = np.arange(request.prompt_tokens, dtype=np.uint64)
    if known:
        ids = [block_id & _UINT64 for block_id in request.prefix_block_ids]
        seeds[:known] = np.repeat(np.array(ids, np.uint64), block_tokens)[:known]
        offsets[:known] %= np.uint64(block_tokens)
    return mixed(mixed(seeds ^ np.uint64(_salt_seed(salt))) + offsets * _GOLDEN)


def _seed(text: str) -> int:
    """Return 64 bits that depend on all of ``text``."""
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big")


@lru_cache(maxsize=16)
def _salt_seed(salt: str) -> int:
    """Return the seed of a salt, which every prompt of a load needs; no salt changes nothing."""
    return _seed(salt) if salt else 0


def mixed(values: Hashes) -> Hashes:
    """Apply the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): fixed, unlike numpy's
    RNGs.
    """
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
