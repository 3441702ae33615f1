"""A stream chooses the requests that the transforms of a whole trace keep."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.app.scenario.options.trace import TraceOptions
from servetwin.app.tasks.replay_stream import open_stream
from servetwin.workloads.errors import TraceError
from servetwin.workloads.streams import blocks
from servetwin.workloads.streams.streamed_trace import Chosen, StreamedTrace
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
            said = outcome(lambda: open_stream(given_options))
            assert str(said).endswith("no requests") or said == whole
            return
        stream = open_stream(given_options)
        assert tuple(stream) == whole.requests
        assert stream.longest_tokens == whole.longest_tokens


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


def test_a_file_that_has_lost_rows_since_is_named(tmp_path: Path) -> None:
    path = tmp_path / "some.csv"
    path.write_text(azure_text(list(range(10)), [3] * 10))
    stream = StreamedTrace.open(TraceFile(path))
    path.write_text(azure_text(list(range(8)), [3] * 8))
    with pytest.raises(TraceError, match="has changed while it was read"):
        list(stream)
