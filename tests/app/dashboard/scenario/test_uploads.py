"""Uploaded traces: their names, their errors, and what is too large to be taken."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from servetwin.app.dashboard.scenario import uploads
from servetwin.app.dashboard.scenario.uploads import read_upload
from servetwin.workloads.errors import TraceError
from servetwin.workloads.reading import sample_path
from servetwin.workloads.rows import ReadingLimits
from tests.support.dashboard_app import Browser, expect

GZIPPED = gzip.compress(b"{}" * 1000, mtime=0)
CSV = b"TIMESTAMP,ContextTokens,GeneratedTokens\n"
ROW = b"2023-11-16 18:15:46.6805900,4,1\n"


def sample() -> bytes:
    with sample_path() as path:
        return Path(path).read_bytes()


def test_a_trace_keeps_its_own_name() -> None:
    found = read_upload("../../mine.jsonl", sample())
    assert (found.source, len(found)) == ("mine.jsonl", 240)
    assert len(read_upload("mine.jsonl.gz", gzip.compress(sample()))) == 240


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("bad.csv", b"TIMESTAMP,ContextTokens,GeneratedTokens\nx,1,1\n", r"^bad\.csv"),
        ("..", b"nothing", r"^\.\.:1"),
        ("empty.jsonl", b"", r"^empty\.jsonl"),
        ("cut.jsonl.gz", GZIPPED[:20], "^cut.*gzip data are truncated"),
    ],
)
def test_a_bad_trace_is_one_line_with_its_own_name(name: str, content: bytes, message: str) -> None:
    with pytest.raises(TraceError, match=message) as error:
        read_upload(name, content)
    assert "/tmp" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "limit"),
    [
        (gzip.compress(bytes(60_000_000), 1), "more than 50 MB unpacked"),
        (gzip.compress(b"[" * 60_000_000, 1), "more than 50 MB unpacked"),
        (gzip.compress(CSV + ROW * 2_000_000, 1), "more than 50 MB unpacked"),
    ],
    ids=["zeros", "brackets", "rows"],
)
def test_what_unpacks_to_too_much_is_refused_before_a_row_is_read(
    content: bytes, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> Any:
        raise AssertionError("it was read")

    monkeypatch.setattr(uploads, "read_trace", never)
    assert len(content) < 1_000_000
    with pytest.raises(TraceError, match=f"^bomb.gz: {limit}; take a part of it$"):
        read_upload("bomb.gz", content)


def test_notes_and_errors_have_the_own_name_of_a_table() -> None:
    text = b"ts_s,in,out,ttft_ms\n0,4,5,80\n"
    notes = read_upload("my log.csv", text).notes
    assert any("calibrate --recorded 'my log.csv' fits" in note for note in notes)
    with pytest.raises(TraceError, match=r"^mine:1: field 'row': no known trace format"):
        read_upload("mine", b"no trace\n")


def test_a_table_is_read_by_its_mapping() -> None:
    text = b"a,b,c\n1795165200,4,5\n1795165201,6,7\n"
    found = read_upload("mine.csv", text, "arrival_s=a,prompt_tokens=c,output_tokens=b")
    assert [(r.arrival_s, r.prompt_tokens) for r in found] == [(0.0, 5), (1.0, 7)]


def test_too_many_rows_are_refused_on_one_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "READING_LIMITS", ReadingLimits(rows=100, seconds=60))
    array = json.dumps([{"prompt": "a"}] * 101).encode()
    for content in (CSV + ROW * 100, array):
        with pytest.raises(TraceError, match=r"^mine: more than 100 rows; take a part of it$"):
            read_upload("mine", content)
    assert len(read_upload("mine", CSV + ROW * 99)) == 99


@pytest.mark.slow
@pytest.mark.browser
def test_a_bomb_is_an_error_beside_its_widget_and_no_link_can_name_it(
    user: Browser, tmp_path: Path
) -> None:
    bomb = tmp_path / "bomb.csv.gz"
    bomb.write_bytes(gzip.compress(CSV + ROW * 5_000_000, 6))
    user.open("why?requests=100", "Why")
    sidebar = user.page.get_by_test_id("stSidebar")
    user.upload(bomb)
    expect(sidebar.get_by_text("bomb.csv.gz: more than 50 MB unpacked")).to_be_visible()
    user.assert_sound()
    user.open("why?requests=100&workload=bomb.csv.gz", "Why")
    expect(user.page.get_by_test_id("stAlert").first).to_contain_text("is not here")
    user.assert_sound()
