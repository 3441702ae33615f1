"""Groups of layers over one pool: what is held, what is found, and the laws."""

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.policies.config import PolicyConfig
from servetwin.policies.kv.grouped import GroupedKV
from servetwin.policies.lockstep import Lockstep
from servetwin.policies.sequence import Sequence
from servetwin.sim.core.simulate import simulate
from servetwin.sim.step_times.step_time import LinearStepTime
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.request import Request
from tests.support.checked import CheckedScheduler, request
from tests.support.effort import examples
from tests.support.random_runs import Clock, every_scheduler, policies, run_checked, workloads

ONE_SECOND = LinearStepTime.of({"constant": 1.0})
EIGHT = PolicyConfig(kv="grouped", kv_tokens=4096, block_tokens=8, prefix_cache=True)
SHARED = ["full", "window:16", "window:21", "full,window:17", "full,2xchunk:24", "state"]
SHARED += ["full,3xstate", "full,window:40,state", "window:16,chunk:32"]
UNSHARED = [*SHARED, "kept:7", "full,kept:5", "state:20", "full,state:9"]


def grouped(config: PolicyConfig, groups: str, shares: bool) -> PolicyConfig:
    return config.changed(
        kv="grouped", kv_groups=groups, prefix_cache=shares, prefix_index="blocks",
        host_cache_tokens=0, eviction="lru", recompute="all", kv_tokens=3 * config.kv_tokens,
    )  # fmt: skip


@every_scheduler
@settings(max_examples=examples(40))
@given(data=st.data(), requests=workloads(), shares=st.booleans())
def test_macro_steps_equal_single_steps_and_every_law_holds(
    batching: str, data: st.DataObject, requests: list[Request], shares: bool
) -> None:
    groups = data.draw(st.sampled_from(SHARED if shares else UNSHARED))
    config = grouped(data.draw(policies(batching)), groups, shares)
    clock: Clock = data.draw(st.sampled_from(["affine", "noisy"]))
    single = run_checked(config, requests, False, clock)
    macro = run_checked(config, requests, True, clock)
    pd.testing.assert_frame_equal(single.requests, macro.requests, check_exact=True)
    assert single.extra["simulation"]["steps"] == macro.extra["simulation"]["steps"]
    assert single.pauses.equals(macro.pauses)


@every_scheduler
@settings(max_examples=examples(25))
@given(data=st.data(), requests=workloads(), shares=st.booleans())
def test_one_full_group_decides_as_paged_memory_does(
    batching: str, data: st.DataObject, requests: list[Request], shares: bool
) -> None:
    config = grouped(data.draw(policies(batching)), "full", shares)
    one = run_checked(config, requests, True)
    paged = run_checked(config.changed(kv="paged"), requests, True)
    pd.testing.assert_frame_equal(
        paged.requests.drop(columns="error"), one.requests.drop(columns="error"), check_exact=True
    )
    pd.testing.assert_frame_equal(paged.steps, one.steps, check_exact=True)
    assert paged.pauses.equals(one.pauses)


@given(
    window=st.integers(8, 60),
    chunks=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    decodes=st.integers(1, 60),
    shares=st.booleans(),
)
def test_a_window_holds_no_more_than_its_blocks_and_one_beside_the_running_chunk(
    window: int, chunks: list[int], decodes: int, shares: bool
) -> None:
    memory = GroupedKV(replace(EIGHT, kv_groups=f"window:{window}", prefix_cache=shares))
    seq = Sequence("a", 0.0, sum(chunks), decodes + 1)
    assert memory.reserve_part(seq, chunks[0], chunks[0])
    for chunk in chunks:
        end = seq.computed_tokens + chunk
        assert memory.extend(seq, end)
        memory.commit(seq, end)
        seq.base_computed_tokens = end
        memory.check([seq])
        assert held_blocks(memory, seq) <= -(-window // 8) + 1 + -(-chunk // 8)
    seq.base_generated_tokens = 1
    group = Lockstep(8)
    group.join(seq)
    for _ in range(decodes):
        assert memory.grow(group)
        group.advance(1)
        memory.check([seq])
        assert held_blocks(memory, seq) <= -(-window // 8) + 1


def held_blocks(memory: GroupedKV, seq: Sequence) -> int:
    usage = memory.usage([seq])
    return (usage.capacity_tokens - usage.free_tokens - usage.cached_tokens) // 8


@given(
    groups=st.sampled_from(["full,window:24", "full,2xwindow:9", "full,chunk:32", "full,state"]),
    prompts=st.lists(st.tuples(st.integers(0, 12), st.integers(1, 100)), max_size=12),
)
def test_hits_are_never_more_than_those_of_full_attention(
    groups: str, prompts: list[tuple[int, int]]
) -> None:
    """Where nothing is evicted. Prompts share their beginnings with one another."""
    alone, mixed = (GroupedKV(replace(EIGHT, kv_groups=text)) for text in ("full", groups))
    for number, (shared, tokens) in enumerate(prompts):
        own = range(100 * (number + 1), 100 * (number + 1) + 13)
        keys = [*range(shared), *own][: -(-tokens // 8)]
        hits = [hit_of(memory, number, tokens, keys) for memory in (alone, mixed)]
        assert hits[1] <= hits[0] < tokens


def hit_of(memory: GroupedKV, number: int, tokens: int, keys: list[int]) -> int:
    """Compute a prompt as a whole and let it go; return what was found of it."""
    seq = Sequence(str(number), 0.0, tokens, 1, keys)
    seq.arrival_number = number
    hit = memory.cached_prefix(seq)
    assert memory.reserve(seq, tokens)
    memory.commit(seq, tokens)
    seq.base_computed_tokens = tokens
    memory.check([seq])
    memory.release(seq)
    return hit


def test_a_window_lets_more_decode_at_once() -> None:
    """20 + 13 tokens fill 9 blocks of 4; a window of 8 leaves 3 at most of them."""
    config = replace(EIGHT, kv_tokens=72, block_tokens=4, prefix_cache=False, token_budget=100)
    requests = [request(str(n), 0.3 * n, 20, 13) for n in range(8)]
    peaks = []
    for groups in ("full", "window:8"):
        scheduler = CheckedScheduler(replace(config, kv_groups=groups))
        run = simulate(requests, scheduler, ONE_SECOND)
        assert set(run.requests["status"]) == {"finished"}
        peaks.append(run.steps["running"].max())
    assert peaks[1] > peaks[0]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ("0xwindow:128", "kv_groups: '0xwindow:128' has no layers; give 1 to 1000 groups"),
        ("full,window:7", "kv_groups: 'window:7' is below a block of 8 tokens; give a larger one,"),
        ("window", "kv_groups: 'window' is no group; it must be one of full, window:TOKENS,"),
        ("full:9", "kv_groups: 'full:9' is no group"),
        ("", "kv_groups: '' is no group"),
        ("kept:9", "prefix_cache: 'kept:9' of kv_groups forgets what others would share; set pref"),
        ("state:9", "prefix_cache: 'state:9' of kv_groups forgets what others would share"),
    ],
)
def test_groups_that_cannot_be_are_named(groups: str, message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        replace(EIGHT, kv_groups=groups)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "named"),
    [({"eviction": "lfu"}, "eviction: 'lfu'"), ({"host_cache_tokens": 8}, "host")],
)
def test_what_groups_do_not_have_is_refused(setting: dict[str, Any], named: str) -> None:
    with pytest.raises(PolicyError, match=named):
        replace(EIGHT, **setting)
