"""Shared prefixes of generated prompts, as chained block ids."""

from dataclasses import dataclass
from itertools import count, islice, repeat

import numpy as np

from servetwin.workloads.block_ids import BlockIds, Ids
from servetwin.workloads.errors import TraceError
from servetwin.workloads.generators.arrivals import FloatArray, check_not_negative
from servetwin.workloads.generators.lengths import IntArray
from servetwin.workloads.request import BLOCK_TOKENS
from servetwin.workloads.rows import counted
from servetwin.workloads.trace import Trace

MAX_GROUPS = 1_000_000


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
    block_tokens: int = BLOCK_TOKENS

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
        return self.ids_sharing(shared, prompts, rng)

    def ids_sharing(
        self, shared: IntArray, prompts: IntArray, rng: np.random.Generator
    ) -> list[tuple[int, ...]]:
        """Return ids of prompts that share so many blocks each, of at most a prefix."""
        whole_prefix = self.prefix_tokens // self.block_tokens
        popularity = _popularity(self.groups, self.zipf)
        groups = rng.choice(self.groups, size=len(prompts), p=popularity)
        own_ids = count(self.groups * whole_prefix)
        blocks = -(-prompts // self.block_tokens)
        starts = (groups * whole_prefix).tolist()
        rows = zip(starts, shared.tolist(), blocks.tolist(), strict=True)
        return [
            (*range(first, first + begins), *islice(own_ids, whole - begins))
            for first, begins, whole in rows
        ]

    def describe(self) -> str:
        """Return how many groups there are, and what each shares."""
        return (
            f"shared prefixes of {counted(self.prefix_tokens, 'token')} in "
            f"{counted(self.groups, 'group')} (Zipf exponent {self.zipf:.3g})"
        )


def _popularity(choices: int, zipf: float) -> FloatArray:
    weights = np.arange(1, choices + 1, dtype=np.float64) ** -zipf
    popularity: FloatArray = weights / weights.sum()
    return popularity


def with_shared_texts(trace: Trace, share: float, texts: int, seed: int) -> Trace:
    """Return the trace with prompts that begin like one of ``texts``, for a ``share`` of their
    length, drawn by ``seed`` as ``PrefixGroups`` are.

    At least one token is a prompt's own, and only whole blocks are shared.
    """
    if not 0 <= share <= 1:
        raise TraceError(f"a shared part must be 0 to 1 of a prompt, not {share:g}")
    if not share or trace.has_prefix_ids:
        return trace
    prompts = trace.column("prompt_tokens")
    shared = np.minimum((share * prompts).astype(int), prompts - 1).clip(0) // BLOCK_TOKENS
    longest = max(1, BLOCK_TOKENS * int(shared.max(initial=0)))
    groups = PrefixGroups(texts, longest, block_tokens=BLOCK_TOKENS)
    ids = groups.ids_sharing(shared, prompts, np.random.default_rng(seed))
    note = f"assumed: {share:g} of each prompt begins like one of {texts} texts (seed {seed})"
    return trace.changed(note, prefix_block_ids=ids, block_tokens=repeat(BLOCK_TOKENS))


def with_conversations(trace: Trace) -> Trace:
    """Return the trace with prompts that begin with the prompt and the answer before them in their
    session; a prompt that is too short for that begins anew."""
    if trace.has_prefix_ids or not any(trace.column("session_id")):
        return trace
    latest: dict[str, tuple[int, BlockIds]] = {}
    own_ids = count()
    prompts, answers = list[Ids](), list[Ids]()
    for request in trace:
        tokens, chain = latest.get(request.session_id or "", (0, BlockIds.of(())))
        begins = chain if tokens <= request.prompt_tokens else BlockIds.of(())
        whole = request.total_tokens // BLOCK_TOKENS
        chain = begins + islice(own_ids, whole - len(begins))
        full = request.prompt_tokens // BLOCK_TOKENS
        prompts.append(chain[:full])
        answers.append(chain[full:])
        if request.session_id:
            latest[request.session_id] = request.total_tokens, chain
    ids = {"prefix_block_ids": prompts, "answer_block_ids": answers}
    note = "assumed: a prompt begins with its session so far"
    return trace.changed(note, **ids, block_tokens=repeat(BLOCK_TOKENS))
