"""Laws of prompts and their prefix ids: what two prompts share before and after a change."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, takewhile
from math import ceil, floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.errors import TraceError
from workloads.generators.prompts import WORDS, prompt_text, prompt_token_ids
from workloads.request import Request
from workloads.trace import Trace
from workloads.transform import scale_tokens

HUGE_VOCABULARY = 2**40


@st.composite
def chained_traces(draw: st.DrawFn) -> Trace:
    """Prompts are paths in a tree; a node's id stands for the whole path to it."""
    block_tokens = draw(st.integers(1, 40))
    full_blocks_only = draw(st.booleans())
    paths = draw(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=8), max_size=6))
    nodes: dict[tuple[int, ...], int] = {}
    requests = []
    for row, path in enumerate(paths):
        prompt_tokens = (len(path) - 1) * block_tokens + draw(st.integers(1, block_tokens))
        count = prompt_tokens // block_tokens if full_blocks_only else len(path)
        prefixes = [tuple(path[: end + 1]) for end in range(count)]
        ids = tuple(nodes.setdefault(prefix, len(nodes)) for prefix in prefixes)
        requests.append(Request(f"r{row}", 0.0, prompt_tokens, 1, ids, block_tokens))
    return Trace(tuple(requests), "tree")


factors = st.sampled_from([0.01, 0.1, 0.29, 0.5, 0.7, 0.999, 1.7, 2.0, 3.3])


def leading(left: Sequence[object], right: Sequence[object]) -> int:
    pairs = zip(left, right, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def shared_ids(left: Request, right: Request) -> int:
    return leading(left.prefix_block_ids, right.prefix_block_ids)


def shared_tokens(left: Request, right: Request) -> int:
    known = shared_ids(left, right) * (left.block_tokens or 0)
    return min(known, left.prompt_tokens, right.prompt_tokens)


@given(chained_traces(), factors)
def test_scaled_prompts_share_what_they_shared(trace: Trace, factor: float) -> None:
    scaled = scale_tokens(trace, prompt=factor)
    pairs = zip(combinations(trace, 2), combinations(scaled, 2), strict=True)
    for (left, right), (new_left, new_right) in pairs:
        assert left.block_tokens is not None
        assert new_left.block_tokens is not None
        shared = shared_ids(left, right) * left.block_tokens * Fraction(str(factor))
        new = shared_ids(new_left, new_right)
        shorter = min(len(new_left.prefix_block_ids), len(new_right.prefix_block_ids))
        assert new >= min(floor(shared / new_left.block_tokens), shorter)
        assert shared_tokens(new_left, new_right) <= (max(1, round(shared)) if shared else 0)


@given(chained_traces(), factors)
def test_scaled_ids_are_valid(trace: Trace, factor: float) -> None:
    position: dict[int, int] = {}
    for old, new in zip(trace, scale_tokens(trace, prompt=factor), strict=True):
        assert old.block_tokens is not None
        assert new.block_tokens is not None
        assert new.prompt_tokens == max(1, round(old.prompt_tokens * Fraction(str(factor))))
        assert new.block_tokens == max(1, round(old.block_tokens * Fraction(str(factor))))
        if len(old.prefix_block_ids) * old.block_tokens >= old.prompt_tokens:
            assert len(new.prefix_block_ids) == ceil(new.prompt_tokens / new.block_tokens)
        else:
            assert len(new.prefix_block_ids) * new.block_tokens <= new.prompt_tokens
        for index, block_id in enumerate(new.prefix_block_ids):
            assert position.setdefault(block_id, index) == index  # an id has one place


@given(chained_traces())
def test_scaling_only_outputs_leaves_prompts_alone(trace: Trace) -> None:
    assert scale_tokens(trace, output=1.0).requests == trace.requests


@given(chained_traces())
def test_prompts_begin_alike_exactly_as_far_as_their_ids_say(trace: Trace) -> None:
    for left, right in combinations(trace, 2):
        left_ids = prompt_token_ids(left, HUGE_VOCABULARY)
        right_ids = prompt_token_ids(right, HUGE_VOCABULARY)
        assert leading(left_ids, right_ids) == shared_tokens(left, right)


@given(chained_traces(), st.integers(260, 600))
def test_prompts_keep_their_length_and_vocabulary(trace: Trace, vocab_size: int) -> None:
    for request in trace:
        ids = prompt_token_ids(request, vocab_size)
        assert len(ids) == request.prompt_tokens
        assert min(ids) >= 259
        assert max(ids) < vocab_size
        words = prompt_text(request).split(" ")
        assert len(words) == request.prompt_tokens
        assert set(words) <= set(WORDS)


@given(chained_traces())
def test_texts_share_their_words(trace: Trace) -> None:
    for left, right in combinations(trace, 2):
        common = leading(prompt_text(left).split(), prompt_text(right).split())
        assert common >= shared_tokens(left, right)


def test_prompts_are_the_same_in_every_version() -> None:
    request = Request("a", 0.0, 6, 1, (3, 7), 2)
    assert prompt_token_ids(request, 32_000) == [652, 4381, 22994, 13222, 13938, 4959]
    assert prompt_text(request) == "gate climb circle floor color edge"


def test_words_are_ascii_and_distinct() -> None:
    assert len(set(WORDS)) == len(WORDS) > 200
    assert all(word.isascii() and word.isalpha() for word in WORDS)


def test_odd_request_ids_have_prompts() -> None:
    assert len(prompt_token_ids(Request("\ud800 é", 0.0, 3, 1), 300)) == 3


def test_a_vocabulary_without_room_is_refused() -> None:
    with pytest.raises(TraceError, match="a vocabulary of 259 has no ids from 259 on"):
        prompt_token_ids(Request("a", 0.0, 3, 1), 259)
