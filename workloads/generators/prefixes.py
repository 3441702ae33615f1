"""Shared prefixes of generated prompts, as chained block ids."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count, islice, repeat
from typing import Protocol

import numpy as np

from servetwin.workloads.errors import TraceError
from servetwin.workloads.generators.arrivals import FloatArray, check_not_negative
from servetwin.workloads.generators.lengths import IntArray
from servetwin.workloads.request import Request, with_columns
from servetwin.workloads.rows import counted
from servetwin.workloads.trace import Trace

MAX_NODES = 2**40
MAX_GROUPS = 1_000_000
"""So that the ids of a tree stay well within 64 bits."""


class PrefixStructure(Protocol):
    """Says which prompts begin alike. Prompts keep their lengths."""

    @property
    def block_tokens(self) -> int:
        """Tokens per block id."""

    def block_ids(self, prompts: IntArray, rng: np.random.Generator) -> list[tuple[int, ...]]:
        """Return ceil(prompt / block_tokens) chained ids for each of the prompt lengths."""


@dataclass(frozen=True, slots=True)
class PrefixGroups:
    """Each prompt begins with the prefix of one of ``groups`` groups, as system prompts do.

    Group k (from 1) is drawn with probability proportional to k^-zipf; 0 is uniform. The prompt
    keeps its length: it is min(prefix_tokens, prompt - 1) shared tokens and a unique rest, so that
    no two prompts are equal. Only blocks that lie within the shared part carry shared ids.
    """

    groups: int
    prefix_tokens: int
    zipf: float = 1.0
    block_tokens: int = 16

    def __post_init__(self) -> None:
        if min(self.groups, self.prefix_tokens, self.block_tokens) < 1:
            sizes = f"{self.groups}, {self.prefix_tokens} and {self.block_tokens}"
            raise TraceError(f"groups, prefix and block tokens must be at least 1, not {sizes}")
        if self.groups > MAX_GROUPS:
            raise TraceError(f"there are at most {MAX_GROUPS:,} groups, not {self.groups:,}")
        check_not_negative("Zipf exponent", self.zipf)

    def block_ids(self, prompts: IntArray, rng: np.random.Generator) -> list[tuple[int, ...]]:
        """Return ceil(prompt / block_tokens) chained ids for each of the prompt lengths.

        Group k's prefix has the ids from k P, P = prefix_tokens // block_tokens; unique ids follow.
        """
        shared = np.minimum(self.prefix_tokens, prompts - 1) // self.block_tokens
        return _in_groups(self, prompts, shared, self.prefix_tokens // self.block_tokens, rng)

    def describe(self) -> str:
        """Return how many groups there are, and what each shares."""
        return (
            f"shared prefixes of {counted(self.prefix_tokens, 'token')} in "
            f"{counted(self.groups, 'group')} (Zipf exponent {self.zipf:.3g})"
        )


@dataclass(frozen=True, slots=True)
class PrefixTree:
    """Prompts that walk down a radix tree of shared parts and then go their own way.

    Each node has ``branching`` children of ``node_tokens`` tokens each, the k-th drawn with
    probability proportional to k^-zipf. A prompt takes a child with probability ``descend``, then a
    child of that, ``levels`` deep at most, as long as at least one token of its own remains. So how
    deep it goes depends on how long it is: drawn apart, depth and length would keep the mean but
    lose the spread of the prompts.
    """

    branching: int = 8
    levels: int = 4
    node_tokens: int = 256
    descend: float = 0.8
    zipf: float = 1.0
    block_tokens: int = 16

    def __post_init__(self) -> None:
        if min(self.branching, self.levels, self.node_tokens, self.block_tokens) < 1:
            sizes = f"{self.branching}, {self.levels}, {self.node_tokens} and {self.block_tokens}"
            raise TraceError(
                f"branching, levels, node and block tokens want 1 or more, not {sizes}"
            )
        if self.node_tokens % self.block_tokens:
            blocks = f"blocks of {self.block_tokens}"
            raise TraceError(f"a node of {self.node_tokens} tokens is no multiple of {blocks}")
        if not 0 <= self.descend <= 1:
            raise TraceError(f"the chance to descend must be 0 to 1, not {self.descend:g}")
        if self._nodes > MAX_NODES:
            raise TraceError(f"a tree has at most {MAX_NODES:,} nodes, not {self._nodes:,}")
        check_not_negative("Zipf exponent", self.zipf)

    def describe(self) -> str:
        """Return the shape of the tree."""
        return (
            f"shared prefixes in a tree of {self.levels} levels with {self.branching} children a "
            f"node of {counted(self.node_tokens, 'token')}, taken with a chance of {self.descend:g}"
        )

    def block_ids(self, prompts: IntArray, rng: np.random.Generator) -> list[tuple[int, ...]]:
        """Return ceil(prompt / block_tokens) chained ids for each of the prompt lengths.

        Node n has the ids from n B, B = node_tokens // block_tokens; unique ids follow.
        """
        depth_rng, child_rng = rng.spawn(2)
        popularity = _popularity(self.branching, self.zipf)
        children = child_rng.choice(self.branching, (len(prompts), self.levels), p=popularity)
        unique_ids = count(self._nodes * self._node_blocks)
        depths = self._depths(prompts, depth_rng).tolist()
        walks = zip(children.tolist(), depths, prompts.tolist(), strict=True)
        return [
            tuple(self._chain(path[:depth], tokens, unique_ids)) for path, depth, tokens in walks
        ]

    @property
    def _node_blocks(self) -> int:
        return self.node_tokens // self.block_tokens

    @property
    def _nodes(self) -> int:
        return sum(self.branching**level for level in range(1, self.levels + 1))

    def _depths(self, prompts: IntArray, rng: np.random.Generator) -> IntArray:
        stays = rng.random((len(prompts), self.levels)) >= self.descend
        willing = np.where(stays.any(axis=1), stays.argmax(axis=1), self.levels)
        return np.minimum(willing, (prompts - 1) // self.node_tokens)

    def _chain(
        self, path: list[int], prompt_tokens: int, unique_ids: Iterator[int]
    ) -> Iterator[int]:
        node = -1  # the root, which holds nothing; b nodes from (n + 1) b on are the children of n
        for child in path:
            node = (node + 1) * self.branching + child
            yield from range(node * self._node_blocks, (node + 1) * self._node_blocks)
        blocks = -(-prompt_tokens // self.block_tokens)
        yield from islice(unique_ids, blocks - len(path) * self._node_blocks)


@dataclass(frozen=True, slots=True)
class PrefixShares:
    """Each prompt begins with one of ``groups`` texts, for a ``share`` of its own length.

    Group k (from 1) is drawn with probability proportional to k^-zipf. The prompt keeps its length;
    at least one token is its own, and only whole blocks are shared.
    """

    groups: int
    share: float
    zipf: float = 1.0
    block_tokens: int = 16

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise TraceError(f"a shared part must be 0 to 1 of a prompt, not {self.share:g}")

    def describe(self) -> str:
        """Return how many groups there are, and what each shares."""
        return (
            f"shared prefixes of {self.share:.3g} of each prompt in "
            f"{counted(self.groups, 'group')} (Zipf exponent {self.zipf:.3g})"
        )

    def block_ids(self, prompts: IntArray, rng: np.random.Generator) -> list[tuple[int, ...]]:
        """Return ceil(prompt / block_tokens) chained ids for each of the prompt lengths."""
        shared = np.minimum((self.share * prompts).astype(int), prompts - 1).clip(0)
        shared //= self.block_tokens
        return _in_groups(self, prompts, shared, int(shared.max(initial=0)), rng)


def _in_groups(
    structure: PrefixGroups | PrefixShares,
    prompts: IntArray,
    shared: IntArray,
    text_blocks: int,
    rng: np.random.Generator,
) -> list[tuple[int, ...]]:
    """Return ids of prompts that share blocks with a group, whose text has ``text_blocks``."""
    popularity = _popularity(structure.groups, structure.zipf)
    groups = rng.choice(structure.groups, size=len(prompts), p=popularity)
    own_ids = count(structure.groups * text_blocks)
    blocks = -(-prompts // structure.block_tokens)
    starts = (groups * text_blocks).tolist()
    rows = zip(starts, shared.tolist(), blocks.tolist(), strict=True)
    return [
        (*range(first, first + begins), *islice(own_ids, whole - begins))
        for first, begins, whole in rows
    ]


def _popularity(choices: int, zipf: float) -> FloatArray:
    weights = np.arange(1, choices + 1, dtype=np.float64) ** -zipf
    popularity: FloatArray = weights / weights.sum()
    return popularity


BLOCK_TOKENS = 16


def with_shared_texts(trace: Trace, share: float, texts: int, seed: int) -> Trace:
    """Return the trace with prompts that begin like one of ``texts``, for a ``share`` of their
    length, as ``PrefixShares`` draws them by ``seed``."""
    if not share or trace.has_prefix_ids:
        return trace
    structure = PrefixShares(texts, share, block_tokens=BLOCK_TOKENS)
    prompts = np.array([request.prompt_tokens for request in trace], dtype=np.int64)
    ids = structure.block_ids(prompts, np.random.default_rng(seed))
    requests = with_columns(
        trace.requests, prefix_block_ids=ids, block_tokens=repeat(BLOCK_TOKENS, len(ids))
    )
    note = f"assumed: {share:g} of each prompt begins like one of {texts} texts (seed {seed})"
    return trace.replaced([*requests], note)


def with_conversations(trace: Trace) -> Trace:
    """Return the trace with prompts that begin with the prompt and the answer before them in their
    session; a prompt that is too short for that begins anew."""
    if trace.has_prefix_ids or not any(request.session_id for request in trace):
        return trace
    latest: dict[str, tuple[int, tuple[int, ...]]] = {}
    own_ids = count()
    requests = []
    for request in trace:
        tokens, chain = latest.get(request.session_id or "", (0, ()))
        begins = chain if tokens <= request.prompt_tokens else ()
        whole = request.total_tokens // BLOCK_TOKENS
        chain = (*begins, *islice(own_ids, whole - len(begins)))
        requests.append(_with_chain(request, chain))
        if request.session_id:
            latest[request.session_id] = request.total_tokens, chain
    return trace.replaced(requests, "assumed: a prompt begins with its session so far")


def _with_chain(request: Request, chain: tuple[int, ...]) -> Request:
    """Return the request with one id per full block of its prompt, then those of its answer."""
    full = request.prompt_tokens // BLOCK_TOKENS
    return replace(
        request,
        prefix_block_ids=chain[:full],
        answer_block_ids=chain[full:],
        block_tokens=BLOCK_TOKENS,
    )
