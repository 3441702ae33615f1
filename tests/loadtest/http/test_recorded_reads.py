"""Recorded pieces come back as they were."""

from hypothesis import given
from hypothesis import strategies as st

from servetwin.loadtest.http.recorded_reads import RecordedReads


@given(
    data=st.lists(st.binary(min_size=1, max_size=5), max_size=8),
    start=st.integers(0, 9),
    most=st.integers(0, 9),
)
def test_a_span_is_the_pieces_themselves(data: list[bytes], start: int, most: int) -> None:
    reads = RecordedReads()
    for stamp_ns, piece in enumerate(data):
        reads.add(stamp_ns, piece)
    parts = [(p.stamps_ns[0], p.data) for p in reads.span(start, most).pieces()]
    assert parts == list(enumerate(data))[start : start + most]
