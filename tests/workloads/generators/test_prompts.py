"""Laws of prompts and their prefix ids: what two prompts share before and after a change."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.workloads.errors import TraceError
from servetwin.workloads.generators.prompts import WORDS, prompt_text, prompt_token_ids
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.prefix_chains import chained_traces, leading, shared_tokens

HUGE_VOCABULARY = 2**40


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


@given(chained_traces())
def test_a_salt_changes_every_prompt_and_keeps_what_they_share(trace: Trace) -> None:
    """Prefixes of small ids under one salt must not be those of other ids under another."""
    salted = {
        salt: [prompt_token_ids(request, HUGE_VOCABULARY, salt=salt) for request in trace]
        for salt in ("", "1", "2")
    }
    first = [{ids[0] for ids in prompts} for prompts in salted.values()]
    assert not any(one & other for one, other in combinations(first, 2))
    for (left, one), (right, other) in combinations(enumerate(trace), 2):
        shared = {leading(prompts[left], prompts[right]) for prompts in salted.values()}
        assert shared == {shared_tokens(one, other)}


def test_words_are_ascii_and_distinct() -> None:
    assert len(set(WORDS)) == len(WORDS) > 200
    assert all(word.isascii() and word.isalpha() for word in WORDS)


def test_odd_request_ids_have_prompts() -> None:
    assert len(prompt_token_ids(Request("\ud800 é", 0.0, 3, 1), 300)) == 3


def test_a_vocabulary_without_room_is_refused() -> None:
    with pytest.raises(TraceError, match="a vocabulary of 259 has no ids from 259 on"):
        prompt_token_ids(Request("a", 0.0, 3, 1), 259)
