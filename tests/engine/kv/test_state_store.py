"""Where states lie: which blocks a step reads and writes, and when."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from servetwin.engine.drafting.drafts import Drafts
from servetwin.engine.kv.forgetting import kept_tokens
from servetwin.engine.kv.state_store import StateStore
from servetwin.engine.models.computation import Computation
from servetwin.engine.models.model_config import StateSpaceConfig, model_preset
from servetwin.policies.batch import ScheduledSequence
from servetwin.policies.config import PolicyConfig
from servetwin.policies.sequence import Sequence
from servetwin.workloads.errors import EngineError
from servetwin.workloads.models.description import StateSizes

SPACE = StateSpaceConfig((0,), StateSizes(heads=2, head_dim=4, groups=1, state_dim=3, kernel=2))
MODEL = replace(model_preset("tiny"), state_space=SPACE)
Moves = list[tuple[int, int, int | None, int]]
"""(first row, rows, block read, block written)."""


def store(model: Any = MODEL) -> StateStore:
    return StateStore(model, 10 * 16, 16, dtype=torch.float32, device=torch.device("cpu"))


def entry(start: int, tokens: int, *tables: list[int], number: int = 0) -> ScheduledSequence:
    seq = Sequence("a", 0.0, 100, 10)
    seq.states, seq.admission_number = list(tables), number
    return ScheduledSequence(seq, start, tokens, yields_token=False)


def moves(*entries: ScheduledSequence) -> Moves:
    (runs,) = store().plan(list(entries)).runs
    return [
        (run.rows.start, run.rows.stop - run.rows.start,
         None if run.sources is None else int(run.sources[0]), int(run.targets[0]))
        for run in runs
        if isinstance(run.rows, slice)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("start", "tokens", "table", "expected"),
    [
        (0, 40, [3], [(0, 40, None, 3)]),  # one place, without a prefix cache
        (40, 5, [3], [(0, 5, 3, 3)]),
        (0, 40, [-1, 4, 5], [(0, 32, None, 4), (32, 8, 4, 5)]),  # kept where a block ends
        (0, 32, [-1, 4], [(0, 32, None, 4)]),
        (0, 24, [-1, -1, 4, 5], [(0, 24, None, 4)]),  # in the middle of a prompt
        (24, 24, [-1, -1, 4, 5], [(0, 24, 4, 4)]),
        (48, 9, [-1, -1, 4, 5], [(0, 9, 4, 5)]),
        (32, 8, [-1, 7, 5], [(0, 8, 7, 5)]),  # behind a prefix of another
        (24, 24, [2, 4, 5], [(0, 8, 4, 4), (8, 16, 4, 5)]),
    ],
)
def test_a_chunk_reads_and_writes_the_states_of_its_ends(
    start: int, tokens: int, table: list[int], expected: Moves
) -> None:
    assert moves(entry(start, tokens, table)) == expected


def test_prompts_go_in_order_of_admission_and_padding_goes_nowhere() -> None:
    late, early = entry(32, 4, [-1, 4, 6], number=2), entry(0, 40, [-1, 4, 5], number=1)
    ended = entry(50, 0, [8])._replace(padding=3)
    assert moves(late, ended, early) == [(7, 32, None, 4), (39, 8, 4, 5), (0, 4, 4, 6)]


def test_several_groups_have_the_layers_in_turn() -> None:
    model = replace(MODEL, layers=3, state_space=replace(SPACE, layers=(0, 1, 2)))
    runs = store(model).plan([entry(5, 5, [3], [8])]).runs
    assert [int(run.targets[0]) for (run,) in runs] == [3, 3, 8]


def test_a_step_writes_when_it_is_done_and_reads_what_it_left() -> None:
    states = store()
    for stored in states.tensors:
        stored.zero_()
    plan = states.plan([entry(0, 40, [-1, 4, 5])])
    first, second = plan.runs[0]
    assert plan.before(0, first) is None
    left = torch.ones(1, 1, 14), torch.ones(1, 2, 4, 3)
    plan.leave(0, first, left)
    assert plan.before(0, second) is left
    assert not any(stored.any() for stored in states.tensors)
    plan.commit()
    assert all(stored[0, 4].all() and not stored[0, 5].any() for stored in states.tensors)
    states.copy_blocks([(4, 9), (5, 4)])
    assert all(stored[0, 9].all() and not stored[0, 4].any() for stored in states.tensors)


GROUPED = PolicyConfig(kv="grouped", kv_groups="full,state", prefix_cache=True)


@pytest.mark.parametrize("groups", ["full,state", "2xstate,full"])
def test_states_have_groups_of_their_own(groups: str) -> None:
    assert kept_tokens(MODEL, replace(GROUPED, kv_groups=groups), Computation()) is None


@pytest.mark.parametrize(
    ("policies", "computation", "message"),
    [
        ({"kv": "paged", "kv_groups": "full"}, {}, "kv_groups: full with kv: paged has no blocks "),
        ({"kv_groups": "state"}, {}, "use kv: grouped with kv_groups: full,state"),
        ({"kv_groups": "full"}, {}, "kv_groups: full with kv: grouped has no blocks for the sta"),
        ({"kv_groups": "full,window:32,state"}, {}, "kv_groups: full,window:32,state with kv: gro"),
        (
            {"prefix_cache": False, "kv_groups": "full,state:64"},
            {},
            "kv_groups: full,state:64 with kv: grouped has no blocks",
        ),
        ({}, {"drafts": Drafts("n-gram", (1, 1))}, "drafts: of model tiny, what a state took in"),
        ({}, {"kv_cache": False}, "kv_cache: of model tiny, states are not computed anew"),
        ({"preemption": "swap"}, {}, "preemption: of model tiny, states are not moved to host"),
        ({}, {"kv_memory_share": 0.5}, "kv_memory_share: of model tiny, blocks have states"),
    ],
)
def test_what_states_cannot_do_is_named(
    policies: dict[str, Any], computation: dict[str, Any], message: str
) -> None:
    with pytest.raises(EngineError) as refused:
        kept_tokens(MODEL, replace(GROUPED, **policies), Computation(**computation))
    assert message in str(refused.value)
