"""An uploaded table shows what its columns may hold, and its first rows as they would be read."""

from pathlib import Path

import pytest

from servetwin.app.dashboard.scenario.uploads import OwnTable, own_table
from servetwin.workloads.errors import TraceError
from tests.support.paths import SAMPLE

TEXT = (
    "created_at;input_tokens;completion_tokens;status;said\n"
    "2026-11-20 09:00:00,000;412;35;200;hello\n2026-11-20 09:00:00,310;58;;429;\n"
    "2026-11-20 09:00:00,640;many;21;200;you\n"
)
COLUMNS = {"arrival": "created_at", "prompt_tokens": "input_tokens", "status": "status"}


@pytest.fixture
def table(tmp_path: Path) -> OwnTable:
    path = tmp_path / "mine.csv"
    path.write_text(TEXT)
    found = own_table("mine.csv", path, TEXT.encode())
    assert found is not None
    return found


def test_its_rows_are_shown_as_they_would_be_read(table: OwnTable) -> None:
    columns = {**COLUMNS, "output_tokens": "completion_tokens"}
    rows = table.read_rows(columns)
    assert rows[0] == {
        "arrival, s": "+0.000", "prompt tokens": "412", "output tokens": "35", "outcome": "answered"
    }  # fmt: skip
    assert rows[1]["output tokens"] == ""
    assert rows[1]["outcome"] == "failed: 429"
    assert rows[2] == {"outcome": "wrong: field 'input_tokens': not an integer (\"many\")"}
    assert table.read_rows({**COLUMNS, "answer": "said"})[0]["output tokens"] == "of the text"


def test_its_columns_are_known(table: OwnTable) -> None:
    assert table.names == ["created_at", "input_tokens", "completion_tokens", "status", "said"]
    assert table.has(COLUMNS)
    assert not table.has({"arrival": "ts"})
    assert (table.is_text("said"), table.is_text("status")) == (True, False)


def test_a_known_format_is_no_own_table(tmp_path: Path) -> None:
    assert own_table("sample", SAMPLE, b"") is None
    path = tmp_path / "bad.csv"
    path.write_text("a,a,b\n1,2,3\n")
    with pytest.raises(TraceError, match="columns 1 and 2 have this name"):
        own_table("bad.csv", path, b"")
