"""Paged memory, call by call: what is reserved, grown, shared, copied and given back."""

from functools import partial
from typing import Any

import pytest

from servetwin.policies.config import PolicyConfig
from servetwin.policies.config import PrefixIndex as IndexName
from servetwin.policies.kv.paged import PagedKV
from servetwin.policies.lockstep import Lockstep
from servetwin.policies.protocols import KVUsage
from servetwin.policies.sequence import Sequence
from tests.support.counted_lines import lines_run
from tests.support.scheduler_steps import sequence

INDEXES: list[IndexName] = ["radix", "blocks"]
each_index = pytest.mark.parametrize("index", INDEXES)


def memory_of(blocks: int = 8, **settings: object) -> PagedKV:
    return PagedKV(PolicyConfig(kv_tokens=4 * blocks, block_tokens=4, **settings))  # type: ignore[arg-type]


def caching(index: IndexName, blocks: int = 8, **settings: object) -> PagedKV:
    return memory_of(blocks, prefix_cache=True, prefix_index=index, **settings)


def computed(memory: PagedKV, seq: Sequence) -> Sequence:
    """Reserve and compute the whole prompt; it must fit."""
    cached = memory.cached_prefix(seq)
    assert memory.reserve(seq, seq.prompt_tokens)
    seq.base_computed_tokens = cached
    memory.commit(seq, seq.prompt_tokens)
    seq.base_computed_tokens, seq.base_generated_tokens = (
        seq.prompt_tokens,
        seq.generated_tokens + 1,
    )
    return seq


def prompt(name: str, tokens: int, *keys: int) -> Sequence:
    return sequence(name, tokens, 50, block_keys=keys)


def test_whole_blocks_are_reserved() -> None:
    memory = memory_of()
    assert memory.reserve(sequence("a"), 8)
    assert memory.free_tokens() == 24
    assert memory.reserve(sequence("b"), 9)
    assert memory.free_tokens() == 12
    assert not memory.reserve(sequence("c"), 13)
    assert memory.free_tokens() == 12
    assert memory.reserve(sequence("d"), 12)
    assert memory.free_tokens() == 0


@pytest.mark.parametrize(("rounding", "most"), [("up", 24), ("down", 28)])
def test_a_watermark_is_rounded_to_whole_blocks(rounding: str, most: int) -> None:
    """A fifth of 8 blocks is 1.6: two blocks, or one."""
    memory = memory_of(watermark=0.2, watermark_rounding=rounding)
    assert not memory.reserve(sequence("a", most + 1), most + 1)
    assert memory.reserve(sequence("a", most), most)


@pytest.mark.parametrize("index", [None, *INDEXES])
def test_a_watermark_may_be_lifted_for_a_request_that_would_run_alone(
    index: IndexName | None,
) -> None:
    settings: dict[str, Any] = {"watermark": 0.2, "watermark_alone": False}
    memory = caching(index, **settings) if index else memory_of(**settings)
    alone = prompt("a", 29, 1, 2, 3)
    assert memory.refusal(sequence("longest", 32, 1)) is None
    assert memory.reserve(alone, 29)
    memory.release(alone)
    assert memory.free_tokens() == 32, "blocks that are cached and idle are of no sequence"
    assert memory.reserve(sequence("b", 1), 1)
    assert not memory.reserve(sequence("c", 21), 21)
    assert memory.reserve(sequence("c", 20), 20)


@pytest.mark.parametrize(
    ("output", "fits"), [(1, True), (9, True), (10, True), (11, False), (13, False), (14, False)]
)
def test_a_decode_that_needs_a_free_block_can_fill_no_memory_alone(output: int, fits: bool) -> None:
    """Of 4 blocks the last is begun by position 13, and position 14 would find none free."""
    memory = memory_of(4, decode_needs_free_block=True)
    assert (memory.refusal(sequence("a", 4, output)) is None) == fits


def test_a_prompt_that_may_be_decoded_can_fill_no_memory_alone_either() -> None:
    memory = memory_of(4, decode_needs_free_block=True, recompute="computed")
    assert memory.refusal(sequence("a", 13, 1)) is None
    assert memory.refusal(sequence("a", 14, 1)) is not None


@pytest.mark.parametrize("index", [None, *INDEXES])
def test_admission_leaves_the_watermark_free(index: IndexName | None) -> None:
    """A fifth of 8 blocks is 1.6, which is two."""
    memory = caching(index, watermark=0.2) if index else memory_of(watermark=0.2)
    assert not memory.reserve(sequence("a", 28), 28)
    assert memory.reserve(sequence("a", 24), 24)
    assert not memory.reserve(sequence("b", 1), 1)
    assert memory.free_tokens() == 8


def test_decodes_may_grow_into_the_watermark() -> None:
    memory = memory_of(watermark=0.2)
    seq = computed(memory, sequence("a", 24, 50))
    group = Lockstep(4)
    group.join(seq)
    assert memory.repeatable_steps(group, 20) == 8
    assert memory.grow(group, 8)
    assert not memory.grow(group, 1)
    assert memory.free_tokens() == 0


def test_refusal_counts_every_position_but_that_of_the_last_token() -> None:
    assert memory_of().refusal(sequence("a", 30, 3)) is None
    assert memory_of().refusal(sequence("a", 30, 4)) == (
        "needs 33 KV tokens, the memory has 32 (8 blocks of 4)"
    )
    kept = memory_of(watermark=0.2)
    assert kept.refusal(sequence("a", 20, 5)) is None
    assert kept.refusal(sequence("a", 20, 6)) == (
        "needs 25 KV tokens, the memory has 32 (8 blocks of 4, 2 of them kept free)"
    )


def test_decodes_take_a_block_when_they_enter_it() -> None:
    memory = memory_of()
    group = Lockstep(4)
    for name, tokens in (("a", 7), ("b", 8)):
        group.join(computed(memory, sequence(name, tokens, 50)))
    assert memory.free_tokens() == 16
    assert memory.grow(group, 1)
    assert memory.free_tokens() == 12
    group.advance(1)
    assert memory.grow(group, 4)
    assert memory.free_tokens() == 4
    assert group.granted_step == 5
    assert memory.repeatable_steps(group, 99) == 3
    memory.check(list(group))


def test_blocks_given_back_are_used_again() -> None:
    memory = memory_of(4)
    first = computed(memory, sequence("a", 8))
    assert memory.table(first, 8) == [0, 1]
    second = computed(memory, sequence("b", 4))
    assert memory.table(second, 4) == [2]
    memory.release(first)
    assert (first.blocks, first.held.blocks, memory.free_tokens()) == ([], 0, 12)
    third = computed(memory, sequence("c", 12))
    assert sorted(memory.table(third, 12)) == [0, 1, 3]


@each_index
def test_the_last_token_of_a_prompt_is_always_computed(index: IndexName) -> None:
    memory = caching(index)
    computed(memory, prompt("a", 12, 1, 2, 3))
    for tokens, cached in ((13, 12), (12, 8), (9, 8), (8, 4), (5, 4), (4, 0)):
        again = prompt("b", tokens, 1, 2, 3)
        assert memory.cached_prefix(again) == cached
        assert memory.reserve(again, tokens)
        assert again.held.keyed_blocks == cached // 4
        memory.release(again)


@each_index
def test_a_shared_prefix_takes_no_further_blocks(index: IndexName) -> None:
    memory = caching(index)
    first = computed(memory, prompt("a", 12, 1, 2, 3))
    second = computed(memory, prompt("b", 13, 1, 2, 4))
    assert memory.free_tokens() == 32 - 12 - 8
    assert memory.table(second, 13)[:2] == memory.table(first, 12)[:2]
    assert memory.usage([first, second]) == KVUsage(32, 17, 3, 0, 0, 0, 12, 8)
    memory.check([first, second])


@each_index
def test_prompts_stay_cached_until_their_room_is_needed(index: IndexName) -> None:
    memory = caching(index)
    first = computed(memory, prompt("a", 12, 1, 2, 3))
    memory.release(first)
    usage = memory.usage([])
    assert (usage.cached_tokens, usage.free_tokens, memory.free_tokens()) == (12, 20, 32)
    assert memory.cached_prefix(prompt("b", 13, 1, 2, 3)) == 12
    wide = computed(memory, prompt("c", 24, 7, 8, 9, 10, 11, 12))
    assert memory.cached_prefix(prompt("b", 13, 1, 2, 3)) == 8
    assert memory.usage([wide]).cached_tokens == 8
    memory.check([wide])


@each_index
def test_a_match_is_sought_anew_when_blocks_come_or_go(index: IndexName) -> None:
    """Four of eight blocks belong to a decode, which later needs three more."""
    memory, group = caching(index), Lockstep(4)
    group.join(computed(memory, sequence("a", 16, 50)))
    first, asked = prompt("b", 8, 1, 2), prompt("c", 9, 1, 2)
    assert memory.reserve(first, 8)
    assert memory.cached_prefix(asked) == 0
    memory.commit(first, 4)
    assert memory.cached_prefix(asked) == 4
    memory.commit(first, 8)
    assert memory.cached_prefix(asked) == 8
    memory.release(first)
    assert memory.cached_prefix(asked) == 8
    assert memory.grow(group, 12)
    assert memory.cached_prefix(asked) == 4


@each_index
def test_a_cached_prefix_of_its_own_is_no_room_for_the_rest(index: IndexName) -> None:
    """Six blocks: two are cached and idle, three held; a prompt of four needs two more, not one."""
    memory = caching(index, blocks=6)
    memory.release(computed(memory, prompt("a", 8, 1, 2)))
    held = computed(memory, prompt("b", 12, 5, 6, 7))
    assert memory.free_tokens() == 12
    assert not memory.reserve(prompt("c", 16, 1, 2, 3), 16)
    assert memory.reserve(prompt("d", 12, 1, 2, 3), 12)
    assert memory.free_tokens() == 0
    assert memory.cached_prefix(prompt("e", 13, 5, 6, 7)) == 12
    memory.release(held)


@each_index
def test_growing_evicts_idle_blocks_and_no_more(index: IndexName) -> None:
    memory = caching(index, blocks=4)
    memory.release(computed(memory, prompt("a", 8, 1, 2)))
    seq = computed(memory, sequence("b", 8, 50))
    group = Lockstep(4)
    group.join(seq)
    assert memory.repeatable_steps(group, 20) == 8
    assert memory.grow(group, 4)
    assert memory.cached_prefix(prompt("c", 9, 1, 2)) == 4
    group.advance(4)
    assert memory.grow(group, 4)
    assert memory.cached_prefix(prompt("c", 9, 1, 2)) == 0
    assert not memory.grow(group, 1)
    memory.check([seq])


@each_index
def test_prompts_that_are_filled_in_turns_are_all_found(index: IndexName) -> None:
    memory = caching(index)
    seqs = [prompt("a", 12, 1, 2, 3), prompt("b", 12, 5, 6, 7)]
    for seq in seqs:
        assert memory.reserve(seq, 12)
    for tokens in (4, 8):
        for seq in seqs:
            memory.commit(seq, tokens)
            seq.base_computed_tokens = tokens
    for keys in ((5, 6, 7), (1, 2, 3)):
        other = prompt("c", 9, *keys)
        assert memory.reserve(other, 9)
        assert other.held.keyed_blocks == 2
        memory.release(other)
    memory.check(seqs)


def test_a_chunk_of_a_prompt_is_no_work_for_the_index_of_all_blocks() -> None:
    """What it evicts and what it fills is told when the next prompt is looked for."""
    memory = caching("blocks", blocks=32)
    memory.release(computed(memory, prompt("a", 128, *range(32))))
    seq = prompt("b", 120, *range(50, 80))
    assert memory.reserve_part(seq, 4, 120)

    def chunk(end: int) -> None:
        assert memory.extend(seq, end)
        memory.commit(seq, end)
        seq.base_computed_tokens = end

    assert max(lines_run(partial(chunk, end)) for end in range(8, 100, 4)) < 30
    usage = memory.usage([seq])
    assert (usage.cached_tokens, usage.free_tokens, usage.live_tokens) == (32, 0, 96)


@pytest.mark.parametrize("index", [None, *INDEXES])
def test_a_fork_shares_full_blocks_and_copies_the_last(index: IndexName | None) -> None:
    memory = caching(index) if index else memory_of()
    seq = computed(memory, prompt("a", 10, 1, 2))
    child = seq.fork()
    assert memory.fork(seq, child, 10)
    assert memory.free_tokens() == 32 - 12 - 4
    tables = memory.table(seq, 10), memory.table(child, 10)
    assert tables[1][:2] == tables[0][:2]
    assert tables[1][2] != tables[0][2]
    assert child.computed_tokens == 10
    memory.check([seq, child])
    memory.release(seq)
    assert memory.usage([child]).live_tokens == 10
    memory.release(child)
    assert memory.free_tokens() == 32


def test_a_fork_without_room_for_its_copy_changes_nothing() -> None:
    memory = memory_of(4)
    seq = computed(memory, sequence("a", 10, 50))
    other = computed(memory, sequence("b", 4, 50))
    child = seq.fork()
    assert not memory.fork(seq, child, 10)
    assert (child.blocks, memory.free_tokens()) == ([], 0)
    memory.release(other)
    assert not memory.fork(seq, child, 13)
    assert memory.fork(seq, child, 12)
    memory.check([seq, child])


def test_what_the_device_lost_is_loaded_from_the_host() -> None:
    memory = caching("radix", blocks=4, host_cache_tokens=16)
    memory.release(computed(memory, prompt("a", 8, 1, 2)))
    memory.release(computed(memory, prompt("b", 12, 7, 8, 9)))
    again = prompt("c", 9, 1, 2)
    assert memory.cached_prefix(again) == 8
    assert memory.reserve(again, 9)
    assert again.held.loaded_tokens == 4
    memory.release(again)


def test_the_check_finds_miscounted_blocks() -> None:
    memory = memory_of()
    seq = computed(memory, sequence("a", 8))
    memory.check([seq])
    seq.held.blocks = 3
    with pytest.raises(AssertionError, match="blocks leak"):
        memory.check([seq])


@each_index
def test_of_a_prompt_that_is_computed_again_with_its_answer_only_the_prompt_is_kept(
    index: IndexName,
) -> None:
    """After a preemption the answer so far is computed with the prompt: 6 + 2 tokens, 1 block."""
    memory = caching(index)
    again = prompt("a", 6, 1, 2)
    again.base_generated_tokens = 2
    assert memory.reserve(again, 8)
    memory.commit(again, 8)
    assert memory.cached_prefix(prompt("b", 12, 1, 2, 3)) == 4
