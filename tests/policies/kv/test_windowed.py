"""Memory that keeps a window, a share or a state: what it admits, and the laws."""

from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from servetwin.policies.config import PolicyConfig
from servetwin.policies.kv.windowed import WindowedKV
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
WINDOWED = PolicyConfig(kv="windowed", kv_tokens=64, block_tokens=4, kv_window_tokens=10)


class WindowedMachine(RuleBasedStateMachine):
    """Sequences come, are computed, decode together, are copied, and go."""

    config = WINDOWED

    def __init__(self) -> None:
        super().__init__()
        self.memory = WindowedKV(self.config)
        self.prefilling: list[Sequence] = []
        self.decodes = Lockstep(self.config.block_tokens)

    @rule(prompt=st.integers(1, 60), output=st.integers(2, 60))
    def admit(self, prompt: int, output: int) -> None:
        seq = Sequence("s", 0.0, prompt, output)
        free = self.memory.free_tokens()
        if self.memory.reserve(seq, prompt):
            self.prefilling.append(seq)
        else:
            assert self.memory.free_tokens() == free
            assert held_tokens(self.memory, seq) == 0

    @precondition(lambda self: self.prefilling)
    @rule(copies=st.booleans())
    def compute(self, copies: bool) -> None:
        seq = self.prefilling.pop(0)
        seq.computed_tokens, seq.generated_tokens = seq.prompt_tokens, 1
        child = seq.fork()
        held = held_tokens(self.memory, seq)
        if copies and self.memory.fork(seq, child, seq.prompt_tokens):
            assert child.computed_tokens == seq.computed_tokens
            assert held_tokens(self.memory, child) == held
            self.decodes.join(child)
        self.decodes.join(seq)

    @precondition(lambda self: self.decodes.size)
    @rule(limit=st.integers(1, 70))
    def grow(self, limit: int) -> None:
        """The promise is what one step after the other would get, neither more nor less."""
        limit = min(limit, self.decodes.steps_to_end())
        promised = self.memory.repeatable_steps(self.decodes, limit)
        for _ in range(promised):
            assert self.memory.grow(self.decodes, 1)
            for seq in self.decodes:
                assert self.memory.table(seq, seq.computed_tokens + 1)
                assert self.memory.table(seq, seq.computed_tokens)
            for seq in self.decodes.advance(1):
                self.memory.release(seq)
        if promised < limit:
            free = self.memory.free_tokens()
            assert not self.memory.grow(self.decodes, 1)
            assert self.memory.free_tokens() == free

    @precondition(lambda self: self.prefilling or self.decodes.size)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from([*self.prefilling, *self.decodes]))
        if seq in self.prefilling:
            self.prefilling.remove(seq)
        else:
            self.decodes.leave(seq)
        self.memory.release(seq)
        assert held_tokens(self.memory, seq) == 0

    @invariant()
    def the_laws_hold(self) -> None:
        holders = [*self.prefilling, *self.decodes]
        self.memory.check(holders)
        usage = self.memory.usage(holders)
        held = [held_tokens(self.memory, seq) for seq in holders]
        assert usage.free_tokens == self.memory.free_tokens()
        assert usage.free_tokens + sum(held) == usage.capacity_tokens == 64
        assert min(usage.live_tokens, usage.reserved_tokens, usage.internal_waste_tokens) >= 0
        if self.config.kv_window_share == 1:
            most = self.config.kv_state_tokens + 10 + self.config.block_tokens
            assert all(tokens < most for tokens in held)


def held_tokens(memory: WindowedKV, seq: Sequence) -> int:
    """What a sequence takes of the memory, the unused end of its last block included."""
    usage = memory.usage([seq]) if seq.held_blocks else memory.usage([])
    return usage.live_tokens + usage.reserved_tokens + usage.internal_waste_tokens


@pytest.mark.parametrize("share", [1.0, 0.5, 0.0])
@pytest.mark.parametrize(("block", "state"), [(1, 0), (4, 3)])
def test_nothing_leaks_and_no_window_is_exceeded(block: int, state: int, share: float) -> None:
    config = replace(WINDOWED, block_tokens=block, kv_state_tokens=state, kv_window_share=share)
    machine = type("Machine", (WindowedMachine,), {"config": config})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples(20), stateful_step_count=30)
    )


WINDOWS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "kv_window_tokens": st.sampled_from([None, 1, 7, 20, 50]),
        "kv_window_share": st.sampled_from([1.0, 1.0, 5 / 6, 0.5]),
        "kv_state_tokens": st.sampled_from([0, 0, 5, 30]),
    }
)
NO_WINDOW: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {"kv_window_tokens": None, "kv_window_share": 1.0},
        {"kv_window_tokens": 7, "kv_window_share": 0.0},
        {"kv_window_tokens": 70, "kv_window_share": 1.0},  # the longest has 69 positions
    ]
)


def without_sharing(config: PolicyConfig, kv: str) -> PolicyConfig:
    return config.changed(kv=kv, prefix_cache=False, host_cache_tokens=0)


@every_scheduler
@settings(max_examples=examples(40))
@given(data=st.data(), requests=workloads(), window=WINDOWS)
def test_macro_steps_equal_single_steps_and_every_law_holds(
    batching: str, data: st.DataObject, requests: list[Request], window: dict[str, Any]
) -> None:
    config = replace(without_sharing(data.draw(policies(batching)), "windowed"), **window)
    clock: Clock = data.draw(st.sampled_from(["affine", "noisy"]))
    single = run_checked(config, requests, False, clock)
    macro = run_checked(config, requests, True, clock)
    pd.testing.assert_frame_equal(single.requests, macro.requests, check_exact=True)
    assert single.extra["simulation"]["steps"] == macro.extra["simulation"]["steps"]
    assert single.pauses.equals(macro.pauses)


@every_scheduler
@settings(max_examples=examples(25))
@given(data=st.data(), requests=workloads(), window=NO_WINDOW)
def test_without_a_window_it_decides_as_paged_memory_does(
    batching: str, data: st.DataObject, requests: list[Request], window: dict[str, Any]
) -> None:
    """All but the words of a refusal; and paged memory shares the prompt of several answers."""
    requests = [replace(asked, samples=1) for asked in requests]
    config = data.draw(policies(batching))
    paged = run_checked(without_sharing(config, "paged"), requests, True)
    windowed = run_checked(replace(without_sharing(config, "windowed"), **window), requests, True)
    pd.testing.assert_frame_equal(
        paged.requests.drop(columns="error"),
        windowed.requests.drop(columns="error"),
        check_exact=True,
    )
    pd.testing.assert_frame_equal(paged.steps, windowed.steps, check_exact=True)
    assert paged.pauses.equals(windowed.pauses)


@given(
    window=st.integers(1, 60),
    share=st.fractions(0, 1, max_denominator=50),
    state=st.integers(0, 9),
    block=st.sampled_from([1, 4, 16]),
    prompt=st.integers(1, 100),
)
def test_an_empty_memory_takes_as_many_as_fit_and_a_longer_window_no_more(
    window: int, share: Fraction, state: int, block: int, prompt: int
) -> None:
    config = PolicyConfig(
        kv="windowed",
        kv_tokens=200,
        block_tokens=block,
        kv_window_tokens=window,
        kv_window_share=float(share),
        kv_state_tokens=state,
    )
    tokens = state + (1 - share) * prompt + share * min(prompt, window)
    assert admitted(config, prompt) == (200 // block) // ceil(tokens / block)
    assert admitted(replace(config, kv_window_tokens=window + 9), prompt) <= admitted(
        config, prompt
    )


def admitted(config: PolicyConfig, prompt: int) -> int:
    """Prompts of a length that an empty memory takes in."""
    memory, taken = WindowedKV(config), 0
    while memory.reserve(Sequence("s", 0.0, prompt, 1), prompt):
        taken += 1
    return taken


@pytest.mark.parametrize(
    ("window", "block", "at_once"),
    [(None, 1, 1), (10, 1, 3), (10, 4, 2), (4, 4, 8), (1, 1, 32)],
)
def test_a_window_lets_more_decode_at_once(window: int | None, block: int, at_once: int) -> None:
    """32 tokens; a request of 20 + 13 tokens fills them, where every token is kept."""
    config = PolicyConfig(
        kv="windowed", kv_tokens=32, block_tokens=block, kv_window_tokens=window, max_seqs=40
    )
    config = replace(config, admission="full", token_budget=1000)
    run = simulate(
        [request(str(n), 0.0, 20, 13) for n in range(40)], CheckedScheduler(config), ONE_SECOND
    )
    assert run.steps["running"].max() == at_once
    waves = ceil(40 / at_once)
    assert run.requests["last_token_s"].max() == 13 * waves


def test_states_alone_are_never_preempted() -> None:
    """Three states fit; three run at once, whatever their length, and none grows."""
    config = PolicyConfig(kv="windowed", kv_tokens=3, block_tokens=1, kv_window_tokens=1)
    run = simulate(
        [request(str(n), 0.0, 50, 100) for n in range(6)], CheckedScheduler(config), ONE_SECOND
    )
    assert run.steps["running"].max() == 3
    assert run.requests["preemptions"].sum() == 0
    assert set(run.requests["status"]) == {"finished"}


def test_prompts_shorter_than_the_window_grow_until_somebody_must_go() -> None:
    """Eight of two tokens enter sixteen; with windows of eight two of them can stay."""
    config = PolicyConfig(kv="windowed", kv_tokens=16, block_tokens=1, kv_window_tokens=8)
    run = simulate(
        [request(str(n), 0.0, 2, 20) for n in range(8)], CheckedScheduler(config), ONE_SECOND
    )
    assert run.requests["preemptions"].sum() > 0
    assert run.requests["output_tokens"].tolist() == [20] * 8
    assert run.steps["running"].max() == 8
    assert run.steps["free_kv_tokens"].min() == 0


def test_samples_copy_what_their_prompt_left() -> None:
    """Three answers to a prompt of 20 in windows of 10: three blocks of four each, one prefill."""
    scheduler = CheckedScheduler(WINDOWED)
    asked = replace(request("a", 0.0, 20, 5), samples=3)
    run = simulate([asked], scheduler, ONE_SECOND)
    assert run.steps["prefill_chunks"].sum() == 1
    assert run.steps["free_kv_tokens"].min() == 64 - 3 * 12
    assert run.requests["output_tokens"].tolist() == [15]


def test_a_sample_without_room_for_a_copy_computes_its_prompt_anew() -> None:
    scheduler = CheckedScheduler(replace(WINDOWED, kv_tokens=20))
    asked = replace(request("a", 0.0, 20, 5), samples=2)
    run = simulate([asked], scheduler, ONE_SECOND)
    assert run.steps["prefill_chunks"].sum() == 2
    assert run.requests["output_tokens"].tolist() == [10]


def test_a_table_says_which_positions_have_room_and_nothing_else() -> None:
    memory = WindowedKV(replace(WINDOWED, kv_tokens=8, kv_window_tokens=None))
    seq = Sequence("a", 0.0, 4, 9)
    assert memory.reserve(seq, 4)
    assert memory.table(seq, 8) == [-1, -1], "a block is free for what repeatable_steps promised"
    assert memory.table(seq, 9) == []


def test_a_request_that_keeps_too_much_is_told_how_much() -> None:
    config = replace(WINDOWED, kv_window_share=0.5, watermark=0.05)
    run = simulate([request("a", 0.0, 100, 31)], CheckedScheduler(config), ONE_SECOND)
    assert run.requests["error"].tolist() == [
        "too_long: needs 70 KV tokens for what it keeps of 130 positions, the memory has 64 "
        "(16 blocks of 4, 1 of them kept free)"
    ]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"prefix_cache": True},
            "prefix_cache: windowed KV memory forgets what others would share; use kv: paged",
        ),
        (
            {"kv_window_tokens": 0},
            "kv_window_tokens: 0 is not possible; it must be at least 1",
        ),
        (
            {"kv_window_share": 1.2},
            "kv_window_share: 1.2 is not possible; it must be from 0 to 1",
        ),
        (
            {"kv_window_share": float("nan")},
            "kv_window_share: nan is not possible; it must be from 0 to 1",
        ),
        (
            {"kv_state_tokens": -1},
            "kv_state_tokens: -1 is not possible; it must be at least 0",
        ),
    ],
)
def test_impossible_settings_are_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        replace(WINDOWED, **wrong)
    assert str(caught.value) == message


def test_blocks_have_numbers_where_all_layers_keep_the_same_tokens() -> None:
    config = replace(
        WINDOWED, kv_window_share=1.0, kv_window_tokens=8, block_tokens=4, kv_tokens=16
    )
    memory = WindowedKV(config)
    first, second = Sequence("a", 0.0, 20, 4), Sequence("b", 0.0, 5, 1)
    assert memory.reserve(first, 20)
    assert memory.reserve(second, 5)
    memory.table(first, 5)
    memory.table(second, 5)
    memory.table(first, 20)
    assert (first.blocks, second.blocks) == ([0, 1], [2, 3])
    memory.release(first)
    assert first.blocks == []
    assert memory.reserve(first, 20)
    memory.table(first, 20)
    assert sorted(first.blocks) == [0, 1]
    hybrid = WindowedKV(replace(config, kv_window_share=0.5, kv_tokens=64))
    assert hybrid.reserve(second, 5)
    second.blocks = []
    hybrid.table(second, 5)
    assert second.blocks == []


def test_a_table_asked_for_fewer_tokens_keeps_its_blocks_and_takes_no_other() -> None:
    """So the core asks for a sequence that is swapped in: for the step, then for what it has."""
    config = replace(WINDOWED, kv_window_tokens=8, kv_tokens=16)
    memory = WindowedKV(config)
    first, second = Sequence("a", 0.0, 5, 4), Sequence("b", 0.0, 5, 4)
    assert memory.reserve(first, 5)
    assert memory.reserve(second, 5)
    memory.table(first, 5)
    assert memory.table(first, 4) == [-1]
    memory.table(second, 5)
    assert (first.blocks, second.blocks) == ([0, 1], [2, 3])
    memory.check([first, second])
    second.blocks = [1, 2]
    with pytest.raises(AssertionError, match="a block is in two tables"):
        memory.check([first, second])
