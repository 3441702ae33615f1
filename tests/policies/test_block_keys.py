"""Keys of prompt blocks: equal keys mean equal prompts up to the end of the block."""

from dataclasses import replace

import pytest

from servetwin.policies.block_keys import PrefixKeys, token_keys
from servetwin.policies.sequence import BlockKey
from servetwin.sim.core.simulate import as_sequence
from servetwin.workloads.request import Request
from tests.support.checked import request


def test_keys_from_trace_ids_and_from_tokens_name_the_same_blocks_alike() -> None:
    keys = PrefixKeys(block_tokens=2)
    first = block_keys(keys, request("a", prompt=9, ids=(1, 2, 3)))
    second = block_keys(keys, request("b", prompt=7, ids=(1, 4)))
    assert len(first) == 4
    assert [x == y for x, y in zip(first, second, strict=False)] == [True, True, False]
    a = token_keys([5, 5, 6, 6, 7, 7, 8, 8, 9], 2)
    b = token_keys([5, 5, 6, 6, 0, 0, 8], 2)
    assert len(a) == 4
    assert [x == y for x, y in zip(a, b, strict=False)] == [True, True, False]


def test_blocks_without_ids_have_no_key() -> None:
    keys = PrefixKeys(block_tokens=4)
    assert block_keys(keys, request("a", prompt=9)) == [None, None]
    ids_end_early = request("b", prompt=19, ids=(7, 8))
    assert block_keys(keys, ids_end_early) == [(7, 0), (8, 1), None, None]


def test_prompts_for_different_adapters_have_different_keys() -> None:
    keys = PrefixKeys(block_tokens=4, by_model=True)
    base, sql, again, chat = (
        block_keys(keys, replace(request("a", prompt=9, ids=(7, 8)), model=model))
        for model in (None, "sql", "sql", "chat")
    )
    assert base == block_keys(PrefixKeys(block_tokens=4), request("a", prompt=9, ids=(7, 8)))
    assert sql == again
    assert not {*base} & {*sql}
    assert not {*sql} & {*chat}


@pytest.mark.parametrize(("block_tokens", "named"), [(1, 8), (2, 4), (4, 2), (8, 1), (3, 2)])
def test_ids_name_every_block_that_lies_within_them(block_tokens: int, named: int) -> None:
    found = block_keys(PrefixKeys(block_tokens), request("a", prompt=11, ids=(7, 8)))
    assert [key is None for key in found] == [False] * named + [True] * (len(found) - named)


@pytest.mark.parametrize("block_tokens", [2, 4, 8])
def test_a_prompt_that_repeats_an_answer_has_the_keys_of_the_answer(block_tokens: int) -> None:
    keys = PrefixKeys(block_tokens)
    asked = Request("a", 0.0, 9, 12, (1, 2), 4, answer_block_ids=(3, 4, 5))
    after = Request("b", 0.0, 24, 1, (1, 2, 3, 4, 5, 6), 4)
    named, again = as_sequence(asked, 0.0, keys), as_sequence(after, 0.0, keys)
    assert named.names_answer
    assert not again.names_answer
    for place in range(20 // block_tokens):
        assert named.key_of_block(place) == again.key_of_block(place) is not None


def block_keys(keys: PrefixKeys, asked: Request) -> list[BlockKey | None]:
    seq = as_sequence(asked, 0.0, keys)
    return [seq.key_of_block(place) for place in range(seq.prompt_tokens // keys.block_tokens)]
