"""Prompts for live replay: token ids or words that share exactly what the prefix ids share."""

import hashlib
from collections.abc import Iterable
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
_MOST_BLOCKS = 200_000
"""Blocks whose words are kept: 100 MB of blocks of 64 tokens."""
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
    ids = _hashes(*_seeds_and_offsets(request), salt) % np.uint64(vocab_size - first_id)
    token_ids: list[int] = (ids.astype(np.int64) + first_id).tolist()
    return token_ids


def prompt_text(request: Request, salt: str = "") -> str:
    """Return ``prompt_tokens`` common words: for endpoints that take text but no token ids.

    The words of whole blocks are kept: the turns of a session repeat most of their prompts.
    """
    block_tokens = request.block_tokens or 0
    whole = request.prompt_tokens // block_tokens if block_tokens else 0
    ids = list(request.prefix_block_ids[:whole])
    kept = _kept_texts(salt, block_tokens)
    if missing := list({block_id for block_id in ids if block_id not in kept}):
        if len(kept) > _MOST_BLOCKS:
            kept.clear()
            missing = list(set(ids))
        seeds = np.repeat(_block_seeds(missing), block_tokens)
        words = _words(seeds, np.arange(len(seeds), dtype=np.uint64) % block_tokens, salt)
        texts = (" ".join(each) for each in words.reshape(-1, block_tokens).tolist())
        kept.update(zip(missing, texts, strict=True))
    rest = _words(*_seeds_and_offsets(request, len(ids) * block_tokens), salt).tolist()
    return " ".join([*map(kept.__getitem__, ids), *rest])


@lru_cache(maxsize=2)
def _kept_texts(salt: str, block_tokens: int) -> dict[int, str]:
    return {}


def _words(seeds: Hashes, offsets: Hashes, salt: str) -> NDArray[np.object_]:
    return _WORDS[(_hashes(seeds, offsets, salt) % np.uint64(len(WORDS))).astype(np.int64)]


def _seeds_and_offsets(request: Request, begin: int = 0) -> tuple[Hashes, Hashes]:
    """Return what each prompt token from ``begin`` on is drawn from, and its place there."""
    block_tokens, tokens = request.block_tokens or 0, request.prompt_tokens
    known = min(tokens, len(request.prefix_block_ids) * block_tokens)
    offsets = np.arange(begin, tokens, dtype=np.uint64)
    seeds = np.full(tokens - begin, _seed(request.request_id), np.uint64)
    if known > begin:
        blocks = _block_seeds(request.prefix_block_ids[begin // block_tokens :])
        seeds[: known - begin] = np.repeat(blocks, block_tokens)[: known - begin]
        offsets[: known - begin] %= np.uint64(block_tokens)
    return seeds, offsets


def _block_seeds(ids: Iterable[int]) -> Hashes:
    return np.array([block_id & _UINT64 for block_id in ids], np.uint64)


def _hashes(seeds: Hashes, offsets: Hashes, salt: str) -> Hashes:
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
