"""Tables of steps: what is kept of the step before is never of another place."""

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.engine.attention.table_attention import SpanTables
from servetwin.engine.kv.kv_store import KVStore
from servetwin.policies.batch import ScheduledSequence
from servetwin.policies.sequence import Sequence
from tests.engine.core.test_runner import RecordingRunner


@pytest.fixture(scope="module")
def store() -> KVStore:
    return RecordingRunner().store


def decode(name: str, blocks: list[int], context: int) -> ScheduledSequence:
    seq = Sequence(name, 0.0, 1, max_tokens=1)
    seq.blocks = blocks
    return ScheduledSequence(seq, context - 1, 1, True)


def test_a_table_has_the_blocks_of_each_context(store: KVStore) -> None:
    entries = [decode("a", [3, 1, 9], 17), decode("b", [4], 1)]
    assert SpanTables(store).of(entries).tolist() == [[48, 16], [64, 0]]


def test_a_row_that_has_not_changed_is_not_made_again(store: KVStore) -> None:
    tables, entry, other = SpanTables(store), decode("a", [3, 1], 17), decode("b", [5], 9)
    first = tables.of([entry, other])
    with patch.object(store, "span_starts", wraps=store.span_starts) as made:
        assert tables.of([entry, other]).tolist() == first.tolist()
        assert made.call_count == 0
        entry.seq.blocks.append(7)
        later = [entry._replace(start=32), other]
        assert tables.of(later).tolist() == [[48, 16, 112], [80, 0, 0]]
        assert made.call_count == 1


def test_a_table_stays_as_it_is_when_others_are_made(store: KVStore) -> None:
    tables, entry, other = SpanTables(store), decode("a", [3, 1], 17), decode("b", [5], 9)
    first = tables.of([entry, other])
    tables.of([other])
    assert first.tolist() == [[48, 16], [80, 0]]


def test_a_region_that_moves_is_another_place() -> None:
    store = RecordingRunner(layout="contiguous").store
    tables, entry = SpanTables(store), decode("a", [], 17)
    entry.seq.region_start = 5
    assert tables.of([entry]).tolist() == [[5]]
    entry.seq.region_start = 40
    assert tables.of([entry]).tolist() == [[40]]


@given(
    steps=st.lists(
        st.dictionaries(
            st.sampled_from("abc"), st.lists(st.integers(0, 9), min_size=1, max_size=4), min_size=1
        ),
        max_size=6,
    )
)
def test_tables_are_those_of_their_step(steps: list[dict[str, list[int]]]) -> None:
    """Whatever joins, leaves, is copied on write or comes back elsewhere."""
    store = RecordingRunner().store
    tables = SpanTables(store)
    for step in steps:
        entries = [decode(name, blocks, 16 * len(blocks)) for name, blocks in step.items()]
        expected = SpanTables(store).of(entries)
        assert tables.of(entries).tolist() == expected.tolist()
        widest = max(map(len, step.values()))
        assert expected.tolist() == [
            [16 * block for block in blocks] + [0] * (widest - len(blocks))
            for blocks in step.values()
        ]
