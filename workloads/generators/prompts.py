"""Prompts for live replay: token ids or words that share exactly what the prefix ids share."""

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from servetwin.workloads.errors import TraceError
from servetwin.workloads.request import Request

# Below are 256 bytes and three special tokens of the bundled engine's vocabulary.
FIRST_ID = 259

# Common words: one token each in most tokenizers.
WORDS = tuple(Path(__file__).with_name("words.txt").read_text(encoding="ascii").split())

_WORDS = np.array(WORDS, dtype=object)
# Blocks whose texts are kept: 100 MB of blocks of 64 tokens.
_MOST_BLOCKS = 200_000
_LARGEST_TABLE = 2**20
_UINT64 = 2**64 - 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)

Hashes = NDArray[np.uint64]


def prompt_text(request: Request, salt: str = "", vocab_size: int | None = None) -> str:
    """Return ``prompt_tokens`` common words, the same in every process, as JSON has them.

    With ``vocab_size`` they are token ids in [FIRST_ID, vocab_size), with commas between.

    Each prefix id gives one run of ``block_tokens`` words, drawn from the id alone; those past the
    ids are drawn from the request_id. So two prompts begin alike as far as their prefix ids agree,
    and there differ but for chance (1 in vocab_size - FIRST_ID per token). Another ``salt`` gives
    other tokens with the same sharing, for loads that a server's prefix cache must not know.

    The texts of whole blocks are kept: the turns of a session repeat most of their prompts.
    """
    if vocab_size is not None and vocab_size <= FIRST_ID:
        raise TraceError(f"a vocabulary of {vocab_size} has no ids from {FIRST_ID} on")
    block_tokens, between = request.block_tokens or 0, " " if vocab_size is None else ","
    whole = request.prompt_tokens // block_tokens if block_tokens else 0
    ids = list(request.prefix_block_ids[:whole])
    kept = _kept_texts(salt, block_tokens, vocab_size)
    if missing := list({block_id for block_id in ids if block_id not in kept}):
        if len(kept) > _MOST_BLOCKS:
            kept.clear()
            missing = list(set(ids))
        seeds = np.repeat(_block_seeds(missing), block_tokens)
        offsets = np.arange(len(seeds), dtype=np.uint64) % block_tokens
        tokens = iter(_tokens(seeds, offsets, salt, vocab_size))
        texts = map(between.join, zip(*[tokens] * block_tokens, strict=True))
        kept.update(zip(missing, texts, strict=True))
    rest = _tokens(*_seeds_and_offsets(request, len(ids) * block_tokens), salt, vocab_size)
    return between.join([*map(kept.__getitem__, ids), *rest])


@lru_cache(maxsize=2)
def _kept_texts(salt: str, block_tokens: int, vocab_size: int | None) -> dict[int, str]:
    return {}


def _tokens(seeds: Hashes, offsets: Hashes, salt: str, vocab_size: int | None) -> list[str]:
    size = len(WORDS) if vocab_size is None else vocab_size - FIRST_ID
    drawn = (_hashes(seeds, offsets, salt) % np.uint64(size)).astype(np.int64)
    if size > _LARGEST_TABLE:
        return [str(each) for each in (drawn + FIRST_ID).tolist()]
    table = _WORDS if vocab_size is None else _ids_as_text(vocab_size)
    tokens: list[str] = table[drawn].tolist()
    return tokens


@lru_cache(maxsize=1)
def _ids_as_text(vocab_size: int) -> NDArray[np.object_]:
    """Return all ids of a vocabulary, written once: a third of the time of each prompt."""
    return np.array([*map(str, range(FIRST_ID, vocab_size))], dtype=object)


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
