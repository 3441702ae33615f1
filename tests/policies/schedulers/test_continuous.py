"""Continuous batching: which prompts join a step, and when a prompt is split."""

import pytest

from servetwin.policies.config import PolicyConfig
from servetwin.policies.kv.paged import PagedKV
from servetwin.policies.protocols import Refusal
from servetwin.policies.schedulers.continuous import ContinuousBatching
from servetwin.policies.sequence import Sequence
from tests.support.scheduler_steps import added, scheduler_of, sequence, step, steps


@pytest.mark.parametrize(
    ("second", "joined"), [(6, "a@0+10 b@0+6"), (7, "a@0+10"), (5, "a@0+10 b@0+5")]
)
def test_a_prompt_joins_where_it_fits_whole_into_the_rest_of_the_budget(
    second: int, joined: str
) -> None:
    scheduler = added(scheduler_of(), sequence("a", prompt=10), sequence("b", prompt=second))
    assert step(scheduler) == joined


def test_the_first_prompt_of_a_step_is_split_and_goes_on_beside_the_decodes() -> None:
    scheduler = added(scheduler_of(token_budget=6), sequence("a", output=4), sequence("b", 12))
    assert steps(scheduler, 4) == ["a@0+4", "a@4+1 b@0+5", "a@5+1 b@5+5", "a@6+1 b@10+2"]


def test_a_prompt_in_progress_leaves_the_rest_of_its_step_to_others() -> None:
    scheduler = added(
        scheduler_of(token_budget=6), sequence("a", 8), sequence("b", 4), sequence("c", 1)
    )
    assert steps(scheduler, 2) == ["a@0+6", "a@6+2 b@0+4"]


def test_no_later_prompt_overtakes_one_that_does_not_fit() -> None:
    scheduler = added(scheduler_of(), *(sequence(n, p) for n, p in [("a", 10), ("b", 7), ("c", 2)]))
    assert steps(scheduler, 2) == ["a@0+10", "a@10+1 b@0+7 c@0+2"]


def test_what_is_cached_needs_no_rows_of_the_budget() -> None:
    scheduler = scheduler_of(prefix_cache=True)
    added(scheduler, sequence("a", prompt=9, output=1, block_keys=[1, 2]))
    step(scheduler)
    added(scheduler, sequence("b", prompt=10), sequence("c", prompt=14, block_keys=[1, 2]))
    assert step(scheduler) == "b@0+10 c@8+6"
    scheduler = scheduler_of(prefix_cache=True)
    added(scheduler, sequence("a", prompt=9, output=1, block_keys=[1, 2]))
    step(scheduler)
    added(scheduler, sequence("b", prompt=10), sequence("c", prompt=15, block_keys=[1, 2]))
    assert step(scheduler) == "b@0+10"


def test_slots_bound_decodes_and_prompts_together() -> None:
    scheduler = added(scheduler_of(max_seqs=2), *(sequence(name) for name in "abc"))
    assert scheduler.load() == (0, 3, 64)
    assert step(scheduler) == "a@0+4 b@0+4"
    assert scheduler.load() == (2, 1, 56)
    assert steps(scheduler, 2) == ["a@4+1 b@4+1", "c@0+4"]


def test_full_admission_waits_for_the_whole_length() -> None:
    """Blocks of 4, 16 in all: 21 + 12 - 1 positions are 8 blocks, 21 + 13 - 1 are 9."""
    for output, admitted in ((12, "a@0+21 b@0+21"), (13, "a@0+21")):
        scheduler = added(
            scheduler_of(admission="full", token_budget=64),
            sequence("a", 21, output),
            sequence("b", 21, output),
        )
        assert step(scheduler) == admitted
        assert scheduler.load()[2] == (0 if output == 12 else 28)


def test_a_late_request_is_given_up_when_it_could_be_admitted() -> None:
    scheduler = added(
        scheduler_of(shed_ttft_s=1.0),
        sequence("a", arrival_s=1.0),
        sequence("b", arrival_s=0.9),
        sequence("c", arrival_s=1.5),
    )
    assert step(scheduler, now_s=2.0) == "a@0+4 c@0+4"
    assert [(seq.request_id, why) for seq, why in scheduler.dropped] == [
        ("b", Refusal("too_late", "waited longer than its TTFT limit of 1 s"))
    ]
    assert scheduler.load() == (2, 0, 56)


def test_samples_take_slots_of_their_own_and_the_request_ends_with_the_last() -> None:
    scheduler = added(scheduler_of(max_seqs=3), sequence("a", output=2, samples=4))
    assert step(scheduler) == "a@0+4"
    assert scheduler.load() == (3, 1, 64 - 4)
    batch = scheduler.schedule(0.0)
    assert batch is not None
    assert scheduler.complete(batch) == []
    assert step(scheduler) == "a@0+5"
    assert scheduler.load() == (0, 0, 64)


def test_samples_of_one_token_end_with_the_prompt() -> None:
    scheduler = added(scheduler_of(), sequence("a", output=1, samples=3))
    batch = scheduler.schedule(0.0)
    assert batch is not None
    assert [seq.request_id for seq in scheduler.complete(batch)] == ["a"]
    assert scheduler.load() == (0, 0, 64)


def test_a_subclass_may_refuse_what_it_likes() -> None:
    class ShortOnly(ContinuousBatching):
        def add(self, seq: Sequence) -> Refusal | None:
            if seq.prompt_tokens > 5:
                return Refusal("unsupported", "too long for me")
            return super().add(seq)

    config = PolicyConfig()
    scheduler = ShortOnly(PagedKV(config), config)
    assert scheduler.add(sequence("a", 5)) is None
    assert scheduler.add(sequence("b", 6)) == Refusal("unsupported", "too long for me")
    assert scheduler.load()[1] == 1
