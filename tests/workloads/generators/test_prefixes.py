"""Shared prefixes: groups and their popularity, and those that are assumed."""

from collections import Counter
from itertools import pairwise
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.workloads.errors import TraceError
from servetwin.workloads.generators.prefixes import (
    PrefixGroups,
    with_conversations,
    with_shared_texts,
)
from servetwin.workloads.request import Request
from servetwin.workloads.statistics.statistics import prefix_statistics, why_no_hits
from servetwin.workloads.trace import Trace


@given(st.integers(1, 9), st.integers(1, 80), st.integers(1, 20), st.integers(0, 50))
def test_prefix_groups(groups: int, prefix_tokens: int, block_tokens: int, seed: int) -> None:
    prefixes = PrefixGroups(groups, prefix_tokens, 1.0, block_tokens)
    prompts = np.random.default_rng(seed).integers(1, 120, 30)
    shared_blocks = prefix_tokens // block_tokens
    first_unique = groups * shared_blocks
    seen: set[int] = set()
    for prompt, ids in zip(
        prompts.tolist(), prefixes.block_ids(prompts, np.random.default_rng(seed)), strict=True
    ):
        shared = [block_id for block_id in ids if block_id < first_unique]
        unique = ids[len(shared) :]
        assert len(ids) == -(-prompt // block_tokens)
        assert len(shared) == min(prefix_tokens, prompt - 1) // block_tokens
        assert all(b == a + 1 for a, b in pairwise(shared))
        assert not shared or shared[0] % shared_blocks == 0
        assert unique
        assert not seen & set(unique)
        seen.update(unique)


def test_prefix_popularity_follows_zipf() -> None:
    prompts = np.full(20_000, 100)
    ids = PrefixGroups(4, 16, 1.0).block_ids(prompts, np.random.default_rng(0))
    drawn = Counter(chain[0] for chain in ids)
    for group in range(4):
        share = 12 / 25 / (group + 1)
        assert drawn[group] == pytest.approx(20_000 * share, abs=4 * sqrt(20_000 * share))


def test_prefix_hits_meet_their_closed_form() -> None:
    prompts = np.full(1000, 100)
    ids = PrefixGroups(5, 64).block_ids(prompts, np.random.default_rng(0))
    figures = prefix_statistics([Request("", 0, 100, 1, chain, 16) for chain in ids])
    assert figures is not None
    assert figures["hit_per_token"] == (1000 - 5) * 64 / (1000 * 100)


def ideal_token_hits(structure: PrefixGroups, prompts: np.ndarray, seed: int = 0) -> float:
    ids = structure.block_ids(prompts, np.random.default_rng(seed))
    figures = prefix_statistics([
        Request("r", 0.0, prompt, 1, chain, structure.block_tokens)
        for prompt, chain in zip(prompts.tolist(), ids, strict=True)
    ])  # fmt: skip
    assert figures is not None
    return float(figures["hit_per_token"])


@pytest.mark.parametrize(
    ("groups", "prefix_tokens", "question", "zipf"),
    [(64, 2048, 128, 1.0), (64, 2050, 128, 0.0), (7, 33, 5, 0.0), (1, 16, 1, 1.0)],
)
def test_shared_prefixes_hit_by_their_closed_form(
    groups: int, prefix_tokens: int, question: int, zipf: float
) -> None:
    """(n - G) P / (n (P + Q)), P in whole blocks, where n requests have seen all G groups."""
    requests = 2000
    structure = PrefixGroups(groups, prefix_tokens, zipf)
    whole = prefix_tokens // 16 * 16
    expected = (requests - groups) * whole / (requests * (prefix_tokens + question))
    found = ideal_token_hits(structure, np.full(requests, prefix_tokens + question))
    assert found == pytest.approx(expected, rel=1e-12)


def trace(*requests: tuple[int, int, str | None]) -> Trace:
    """Requests of so many prompt and output tokens, in that session, a second apart."""
    return Trace(
        tuple(
            Request(f"r{n}", float(n), prompt, output, session_id=session)
            for n, (prompt, output, session) in enumerate(requests)
        ),
        "t",
    )


@given(
    prompts=st.lists(st.integers(0, 900), min_size=1, max_size=40),
    share=st.floats(0.01, 0.95),
    groups=st.integers(1, 5),
    seed=st.integers(0, 9),
)
def test_whole_blocks_of_the_share_are_common_and_the_rest_is_each_prompts_own(
    prompts: list[int], share: float, groups: int, seed: int
) -> None:
    whole = with_shared_texts(trace(*[(p, 1, None) for p in prompts]), share, groups, seed)
    chains = [request.prefix_block_ids for request in whole]
    most = max(max(0, min(int(share * p), p - 1)) // 16 for p in prompts)
    own: set[int] = set()
    for prompt, chain in zip(prompts, chains, strict=True):
        shared = [block for block in chain if block < groups * most]
        assert len(chain) == -(-prompt // 16)
        assert len(shared) == max(0, min(int(share * prompt), prompt - 1)) // 16
        assert not shared or (
            shared[0] % most == 0 and shared == [*range(shared[0], shared[-1] + 1)]
        )
        rest = set(chain[len(shared) :])
        assert not rest & own
        own |= rest


def test_the_share_is_what_an_endless_cache_hits() -> None:
    whole = with_shared_texts(trace(*[(1000, 10, None)] * 400), 0.5, texts=16, seed=3)
    found = prefix_statistics(whole.requests)
    assert found is not None
    first_of_each_text = len({request.prefix_block_ids[0] for request in whole})
    assert found["hit_per_token"] == (400 - first_of_each_text) * 31 * 16 / 400_000
    assert whole.notes == ("assumed: 0.5 of each prompt begins like one of 16 texts (seed 3)",)
    assert whole == with_shared_texts(trace(*[(1000, 10, None)] * 400), 0.5, texts=16, seed=3)
    assert whole != with_shared_texts(trace(*[(1000, 10, None)] * 400), 0.5, texts=16, seed=4)


def test_what_was_recorded_wins() -> None:
    recorded = Trace((Request("r", 0.0, 32, 1, (7, 8), 16, session_id="s"),), "t")
    assert with_shared_texts(recorded, 0.5, texts=4, seed=0) is recorded
    assert with_conversations(recorded) is recorded


def test_nothing_assumed_leaves_the_trace_as_it_is() -> None:
    bare = trace((100, 10, None), (200, 10, None))
    assert with_shared_texts(bare, 0.0, texts=4, seed=0) is bare
    assert with_conversations(bare) is bare


def test_a_prompt_holds_its_session_so_far() -> None:
    found = with_conversations(
        trace((100, 30, "a"), (64, 16, "b"), (160, 20, "a"), (70, 5, "b"), (180, 5, "a"))
    ).requests
    first, other, second, short, third = found
    assert len(first.prefix_block_ids) == 100 // 16
    assert len(first.answer_block_ids) == 130 // 16 - 100 // 16
    whole = first.prefix_block_ids + first.answer_block_ids
    assert second.prefix_block_ids[: len(whole)] == whole
    assert len(second.prefix_block_ids) == 160 // 16
    assert third.prefix_block_ids[:11] == second.prefix_block_ids + second.answer_block_ids
    assert not set(other.prefix_block_ids) & set(whole)
    assert not set(short.prefix_block_ids) & set(other.prefix_block_ids), "70 cannot hold 64 + 16"
    assert why_no_hits(found) is None


def test_requests_without_a_session_share_nothing() -> None:
    found = with_conversations(trace((100, 10, "a"), (200, 10, None), (300, 10, None))).requests
    assert why_no_hits(found) == "no two prompts begin alike"


def test_a_share_beyond_the_prompt_is_refused() -> None:
    with pytest.raises(TraceError, match=r"must be 0 to 1 of a prompt, not 1\.5"):
        with_shared_texts(trace((9, 9, None)), 1.5, texts=4, seed=0)
