"""A stream chooses the requests that the transforms of a whole trace keep."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.app.scenario.options.simulations import StreamOptions
from servetwin.app.scenario.options.trace import TraceOptions
from servetwin.workloads.errors import TraceError
from servetwin.workloads.streams import blocks
from servetwin.workloads.streams import streamed_trace as quiet_moments
from servetwin.workloads.streams.streamed_trace import Chosen, QuietMoments, StreamedTrace
from servetwin.workloads.streams.trace_file import TraceFile
from tests.support.effort import examples

T = TypeVar("T")
HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"


def azure_text(seconds: list[int], outputs: list[int]) -> str:
    rows = (
        f"2024-05-10 00:{at // 60:02}:{at % 60:02}.{at % 7},{5 + at},{output}"
        for at, output in zip(seconds, outputs, strict=True)
    )
    return "\n".join([HEADER, *rows])


@st.composite
def azure_files(draw: st.DrawFn) -> str:
    count = draw(st.integers(2, 60))
    gaps = draw(st.lists(st.integers(0, 30), min_size=count, max_size=count))
    outputs = draw(st.lists(st.integers(1, 9), min_size=count, max_size=count))
    seconds = [sum(gaps[: place + 1]) % 3600 for place in range(count)]
    return azure_text(sorted(seconds), outputs)


options = st.fixed_dictionaries(
    {},
    optional={
        "start_s": st.integers(0, 60).map(float),
        "end_s": st.integers(61, 900).map(float),
        "limit": st.integers(1, 50),
        "rate_per_s": st.floats(0.1, 9),
    },
)


def outcome(read: Callable[[], T]) -> T | str:
    try:
        return read()
    except TraceError as error:
        return str(error)


@settings(max_examples=examples(50))
@given(azure_files(), options)
def test_a_stream_takes_what_the_options_take_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, text: str, chosen: dict[str, Any]
) -> None:
    path = tmp_path_factory.mktemp("traces") / "some.csv"
    path.write_text(text)
    given_options = TraceOptions(path=path, **chosen)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_BYTES", 100)
        whole = outcome(given_options.read)
        if isinstance(whole, str) or not whole.requests:
            said = outcome(lambda: StreamOptions().open(given_options, None))
            assert str(said).endswith("no requests") or said == whole
            return
        stream = StreamOptions().open(given_options, None)
        assert tuple(stream) == whole.requests
        assert stream.longest_tokens == whole.longest_tokens
        half = len(stream) // 2
        ahead = [*stream.requests(0, half), *stream.requests(half, len(stream))]
        assert tuple(ahead) == whole.requests


@pytest.mark.parametrize(
    "chosen", [Chosen(limit=3), Chosen(end_s=3.0), Chosen(end_s=3.0, limit=99)], ids=str
)
def test_rows_after_the_last_chosen_request_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: Chosen
) -> None:
    path = tmp_path / "some.csv"
    path.write_text(azure_text(list(range(60)), [5] * 60) + "\nno row at all\n")
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 100)
    assert len(StreamedTrace.open(TraceFile(path), chosen)) == 3
    with pytest.raises(TraceError, match=":62: field"):
        StreamedTrace.open(TraceFile(path))


def test_a_limit_stops_the_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 200)
    path = tmp_path / "some.csv"
    path.write_text(azure_text(list(range(100)), [3] * 100) + "\nno row at all")
    with pytest.raises(TraceError, match=":102: field"):
        StreamedTrace.open(TraceFile(path))
    assert len(StreamedTrace.open(TraceFile(path), Chosen(limit=20))) == 20
    assert len(StreamedTrace.open(TraceFile(path), Chosen(end_s=20.0))) == 20


def test_a_later_part_does_not_parse_what_is_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 400)
    path = tmp_path / "some.csv"
    path.write_text(azure_text(list(range(100)), [3] * 100))
    stream = StreamedTrace.open(TraceFile(path))
    whole = list(stream)
    path.write_text(path.read_text().replace("00:00:03", "99:99:99"))  # never parsed again
    assert list(stream.requests(90, 100)) == whole[90:]
    with pytest.raises(TraceError, match="no such time"):
        list(stream.requests(0, 10))


def test_a_file_that_has_lost_rows_since_is_named(tmp_path: Path) -> None:
    path = tmp_path / "some.csv"
    path.write_text(azure_text(list(range(10)), [3] * 10))
    stream = StreamedTrace.open(TraceFile(path))
    path.write_text(azure_text(list(range(8)), [3] * 8))
    with pytest.raises(TraceError, match="has changed while it was read"):
        list(stream)


@pytest.mark.parametrize("pieces", [[1000], [3, 500, 0, 497]])
def test_cuts_are_after_the_longest_gaps(
    monkeypatch: pytest.MonkeyPatch, pieces: list[int]
) -> None:
    monkeypatch.setattr(quiet_moments, "FIRST_PART", 10)
    monkeypatch.setattr(quiet_moments, "MOST_PARTS", 16)
    gaps_s = np.ones(1000)
    gaps_s[[260, 480, 770]] = 9.0
    quiet, arrivals_s = QuietMoments(), np.cumsum(gaps_s)
    for piece in np.split(arrivals_s, np.cumsum(pieces)[:-1]):
        quiet.add(piece)
    assert quiet.cuts(4) == [260, 480, 770]
    assert quiet.cuts(1) == []


def test_requests_at_one_moment_have_no_cut() -> None:
    quiet = QuietMoments()
    quiet.add(np.zeros(500))
    assert quiet.cuts(8) == []
    assert QuietMoments().cuts(8) == []
