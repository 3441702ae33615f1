"""What a step of a scheduler is beside its story: shapes, samples, refusals, held memory."""

import pytest

from servetwin.policies.batch import BatchShape
from servetwin.policies.config import PolicyConfig
from servetwin.policies.kv.paged import PagedKV
from servetwin.policies.protocols import Refusal
from servetwin.policies.schedulers.continuous import ContinuousBatching
from servetwin.policies.sequence import Sequence
from servetwin.sim.step_times.step_time import decode_contexts, longest_context
from tests.support.scheduler_steps import added, line, scheduler_of, sequence, step, steps


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


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("decode", BatchShape(2, 3 + 5, 2, ())),
        ("prefill", BatchShape(1, 3, 1, ((4, 1),))),
    ],
)
def test_the_last_row_of_a_prompt_is_timed_as_a_decode_or_as_a_chunk(
    kind: str, shape: BatchShape
) -> None:
    scheduler = added(
        scheduler_of(batching="chunked", token_budget=6, one_row_chunk=kind),
        sequence("a", 2, 3), sequence("b", 5, 1),
    )  # fmt: skip
    assert step(scheduler) == "a@0+2 b@0+4"
    batch = scheduler.schedule(0.0)
    assert batch is not None
    assert line(batch) == "a@2+1 b@4+1"
    assert batch.shape() == shape
    assert len(decode_contexts(batch)) == shape.decode_sequences
    assert longest_context(batch) == (5 if kind == "decode" else 3)


@pytest.mark.parametrize("index", ["blocks", "radix"])
def test_a_preempted_sequence_finds_blocks_of_its_own_answer(index: str) -> None:
    scheduler = scheduler_of(
        batching="unified",
        kv_tokens=32,
        prefix_cache=True,
        prefix_index=index,
        max_model_len=32,
        token_budget=32,
    )
    added(scheduler, sequence("a", 4, 16), sequence("b", 4, 20))
    said = steps(scheduler, 24)
    lost = next(number for number, line in enumerate(said) if line.endswith("-b"))
    back = next(line for line in said[lost + 1 :] if "b@" in line)
    assert ("b@12" in back) == (index == "blocks"), said


def test_finished_members_hold_their_memory_until_the_batch_ends() -> None:
    scheduler = added(
        scheduler_of(batching="static", max_seqs=3), sequence("a", 4, 1), sequence("b", 4, 5)
    )
    batch = scheduler.schedule(9.0)
    assert batch is not None
    assert [seq.request_id for seq in scheduler.holders()] == ["a", "b"]
    assert [seq.request_id for seq in scheduler.complete(batch)] == ["a"]
    assert [seq.request_id for seq in scheduler.holders()] == ["b", "a"]
    assert scheduler.load() == (1, 0, 64 - 4 - 8)


def test_several_samples_are_refused() -> None:
    assert scheduler_of(batching="static", max_seqs=3).add(sequence("a", samples=2)) == Refusal(
        "unsupported", "static batching gives one answer to a prompt, not 2"
    )
