"""The shape of a batch: what a step-time model may know of it."""

from hypothesis import given
from hypothesis import strategies as st

from servetwin.policies.batch import Batch, BatchShape, ScheduledSequence, shape_of
from servetwin.policies.drafted_decodes import DraftedDecodes
from servetwin.policies.lockstep import Lockstep
from servetwin.sim.step_times.step_time import decode_contexts, longest_context
from tests.support.scheduler_steps import sequence


def decodes(*contexts: int) -> Lockstep:
    group = Lockstep(4)
    for name, computed in enumerate(contexts):
        seq = sequence(str(name), computed, 9)
        seq.base_computed_tokens, seq.base_generated_tokens = computed, 1
        group.join(seq)
    return group


def test_a_batch_of_decodes_attends_to_its_contexts_and_the_new_positions() -> None:
    batch = Batch((), decodes(5, 9))
    batch.swapped_tokens = 3
    assert batch.shape() == BatchShape(2, 6 + 10, 2, (), 3, 0, ())
    assert decode_contexts(batch) == (6, 10)
    assert len(batch) == 2


def test_chunks_of_one_row_are_decodes_and_padding_counts_as_rows() -> None:
    one, dead, padded = (sequence(name, 20) for name in "abc")
    batch = Batch(
        [
            ScheduledSequence(dead, 8, 0, False, 1),
            ScheduledSequence(one, 3, 1, False),
            ScheduledSequence(padded, 0, 4, True, 2),
        ],
        decodes(5),
    )
    shape = batch.shape()
    assert shape == BatchShape(3, 6 + 9 + 4, 2, ((0, 6),), 0, 0, ())
    assert (shape.sequences, shape.rows) == (4, 9)
    assert decode_contexts(batch) == (6, 4, 9)
    assert len(batch) == 4
    assert [entry.rows for entry in batch.entries] == [1, 1, 1, 6]


def test_the_next_chunk_ends_at_the_limit_or_with_a_token() -> None:
    seq, batch = sequence("a", 10), Batch()
    assert batch.add_chunk(seq, 4) == 4
    seq.base_computed_tokens = 4
    assert [batch.add_chunk(seq, limit) for limit in (5, 6, 7)] == [5, 6, 6]
    assert list(batch.chunks) == [
        ScheduledSequence(seq, 0, 4, False),
        ScheduledSequence(seq, 4, 5, False),
        ScheduledSequence(seq, 4, 6, True),
        ScheduledSequence(seq, 4, 6, True),
    ]


def test_a_recorded_step_has_the_shape_of_its_entries() -> None:
    assert shape_of([(3, 1, 0), (0, 5, 2)]) == BatchShape(1, 4, 1, ((0, 7),))


def test_a_row_of_a_prompt_may_be_a_prefill_chunk_but_a_dead_row_is_none() -> None:
    one, dead = sequence("a", 20), sequence("b", 20)
    rows = [ScheduledSequence(dead, 8, 0, False, 1), ScheduledSequence(one, 3, 1, False)]
    batch = Batch(rows, decodes(5))
    batch.one_row_prefills = True
    assert batch.shape() == BatchShape(2, 6 + 9, 1, ((3, 1),))
    assert decode_contexts(batch) == (6, 9)
    assert longest_context(batch) == 6


@given(
    st.lists(st.integers(1, 300), max_size=4),
    st.lists(
        st.tuples(st.integers(0, 90), st.integers(0, 9), st.integers(0, 1)),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
)
def test_the_totals_are_the_sums_of_the_shape(
    contexts: list[int], parts: list[tuple[int, int, int]], one_row_prefills: bool
) -> None:
    seq = sequence("p", 100)
    chunks = [
        ScheduledSequence(seq, start, tokens, True, padding or not tokens)
        for start, tokens, padding in parts
    ]
    batch = Batch(chunks, decodes(*contexts))
    batch.one_row_prefills = one_row_prefills
    shape = batch.shape()
    prefills = shape.prefill_chunks
    assert batch.totals() == (
        shape.decode_sequences,
        shape.decode_context_tokens,
        shape.decode_growing,
        len(prefills),
        shape.rows,
        sum(n * start + n * (n + 1) // 2 for start, n in prefills),
        sum(start for start, _ in prefills),
    )


def test_verified_drafts_count_as_decodes_with_all_their_rows() -> None:
    group = DraftedDecodes(3)
    for computed in (20, 30):
        seq = sequence("a", 10)
        seq.base_computed_tokens = computed
        group.join(seq)
    batch = Batch([ScheduledSequence(sequence("b", 10), 4, 6, True)], group)
    pairs = (3 * 20 + 6) + (3 * 30 + 6) + (6 * 4 + 21)
    assert batch.totals() == (2, 23 + 33, 0, 1, 12, pairs, 4)
    assert batch.shape() == BatchShape(0, 0, 0, ((20, 3), (30, 3), (4, 6)), 0, 2)
    assert batch.beside_drafts() == BatchShape(0, 0, 0, ((4, 6),), 0, 2)
    assert [entry[1:4] for entry in batch.entries] == [
        (20, 3, True),
        (30, 3, True),
        (4, 6, True),
    ]
    assert (decode_contexts(batch), longest_context(batch)) == ((), 0)
