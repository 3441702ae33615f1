"""Which sequence is preempted, and what happens to its keys and values."""

from collections.abc import Reversible

import pytest

from servetwin.policies.batch import Batch
from servetwin.policies.config import PolicyConfig, Victim
from servetwin.policies.kv.paged import PagedKV
from servetwin.policies.kv.swap import Swap
from servetwin.policies.lockstep import Lockstep
from servetwin.policies.schedulers.continuous import ContinuousBatching
from servetwin.policies.schedulers.preemption import VICTIMS
from servetwin.policies.sequence import Sequence
from tests.support.scheduler_steps import added, scheduler_of, sequence, step


def running(
    decodes: dict[str, tuple[int, int]], prefilling: dict[str, int]
) -> tuple[Lockstep, list[Sequence]]:
    """Return decodes by (priority, generated tokens), and prompts in progress by priority."""
    lockstep = Lockstep(4)
    for name, (priority, generated) in decodes.items():
        seq = sequence(name, output=99, priority=priority)
        seq.base_generated_tokens = generated
        lockstep.join(seq)
    return lockstep, [sequence(name, priority=p) for name, p in prefilling.items()]


@pytest.mark.parametrize(
    ("victim", "decodes", "prefilling", "chosen"),
    [
        ("newest", {"a": (0, 1), "b": (9, 5)}, {}, "b"),
        ("newest", {"a": (0, 1), "b": (0, 1)}, {"c": 0, "d": 0}, "d"),
        ("lowest-priority", {"a": (1, 1), "b": (2, 1)}, {"c": 3}, "a"),
        ("lowest-priority", {"a": (3, 1), "b": (2, 1)}, {"c": 1, "d": 2}, "c"),
        ("lowest-priority", {"a": (1, 1), "b": (1, 1)}, {"c": 2}, "b"),
        ("lowest-priority", {"a": (1, 1), "b": (1, 1)}, {"c": 1, "d": 1}, "d"),
        ("least-progress", {"a": (0, 2), "b": (0, 5)}, {}, "a"),
        ("least-progress", {"a": (0, 5), "b": (0, 2)}, {}, "b"),
        ("least-progress", {"a": (0, 2), "b": (0, 2)}, {}, "b"),
        ("least-progress", {"a": (0, 2), "b": (0, 2)}, {"c": 0, "d": 0}, "d"),
    ],
)
def test_the_victim_is_the_newest_of_equals(
    victim: Victim,
    decodes: dict[str, tuple[int, int]],
    prefilling: dict[str, int],
    chosen: str,
) -> None:
    lockstep, prompts = running(decodes, prefilling)
    assert VICTIMS[victim](prompts, lockstep).request_id == chosen


def test_progress_counts_what_was_generated_in_lockstep() -> None:
    lockstep, _ = running({"a": (0, 1)}, {})
    lockstep.advance(3)
    late = sequence("b", output=99)
    late.base_generated_tokens = 2
    lockstep.join(late)
    assert VICTIMS["least-progress"]([], lockstep) is late


class LongestLoses(ContinuousBatching):
    """The longest prompt in progress is preempted."""

    def victim(self, prompts: list[Sequence], decodes: Reversible[Sequence]) -> Sequence:
        return max(prompts, key=lambda seq: seq.prompt_tokens)


def test_a_chunk_without_blocks_asks_the_rule_of_the_scheduler() -> None:
    config = PolicyConfig(kv_tokens=16, block_tokens=4, prompt_blocks="chunk")
    scheduler, batch = LongestLoses(PagedKV(config), config), Batch()
    for name, prompt in {"a": 10, "b": 14, "c": 10}.items():
        seq = sequence(name, prompt)
        assert scheduler.memory.reserve(seq, 4)
        seq.base_computed_tokens = 4
        scheduler.prompts.append(seq)
    scheduler.go_on_with_prompts(batch)
    # "a" takes the blocks of "b"; then "c" finds none and only itself to preempt.
    assert [seq.request_id for seq in batch.preempted] == ["b", "c"]


def test_host_memory_is_filled_to_the_last_token_and_given_back() -> None:
    host, batch = Swap(10), Batch()
    first, second, third = (sequence(name) for name in "abc")
    first.base_computed_tokens, second.base_computed_tokens, third.base_computed_tokens = 6, 4, 1
    assert host.store(first, [7], batch)
    assert host.store(second, [], batch)
    assert (batch.swapped_tokens, batch.swapped_out) == (10, [(first, [7]), (second, [])])
    assert (first.held.on_host, second.held.on_host) == (True, True)
    assert not host.store(third, [], batch)
    assert not third.held.on_host
    assert (host.fetch(second), host.fetch(second)) == (4, 0)
    assert not second.held.on_host
    assert host.store(third, [], batch)


def test_a_swapped_sequence_moves_over_the_link_twice_and_computes_nothing_anew() -> None:
    scheduler = added(
        scheduler_of(
            kv_tokens=8, block_tokens=2, max_model_len=8, preemption="swap", host_kv_tokens=4
        ),
        sequence("a", prompt=4, output=2),
        sequence("b", prompt=4, output=2),
    )
    step(scheduler)
    out = scheduler.schedule(0.0)
    assert out is not None
    assert [seq.held.on_host for seq in out.preempted] == [True]
    assert out.swapped_tokens == 4
    scheduler.complete(out)
    back = scheduler.schedule(0.0)
    assert back is not None
    assert [seq.request_id for seq in back.resumed] == ["b"]
    assert back.swapped_tokens == 4
    assert back.entries[0].start == 4
    assert scheduler.load() == (1, 0, 2)


def test_what_a_preempted_sequence_finds_of_itself_is_no_hit() -> None:
    scheduler = scheduler_of(batching="continuous", kv_tokens=28, prefix_cache=True)
    first = sequence("a", 8, 12, block_keys=(1, 2))
    second = sequence("b", 8, 12, block_keys=(3, 4))
    added(scheduler, first, second)
    lines = [step(scheduler) for _ in range(40)]
    assert second.preemptions == 1
    assert any(f"b@{start}+" in line for line in lines[5:] for start in (4, 8) if "-b" not in line)
    assert second.cached_tokens == 0, lines
