"""An error that nobody foresaw is one line, and a file that has the rest without secrets."""

import errno
import re
from pathlib import Path

import pytest

from servetwin.app.last_net import OUR_FAULT, last_words


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (PermissionError(errno.EACCES, "Permission denied", "a/b"), "a/b: Permission denied"),
        (MemoryError(), "out of memory; take a part of the input, or more memory"),
    ],
)
def test_what_the_system_refuses_is_nobodys_fault(error: Exception, line: str) -> None:
    assert last_words(error, (), "servetwin 1") == (line, 1)


def test_anything_else_is_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-a-secret-of-mine")
    arguments = ("loadtest", "http://host", "--header", "X-Key: sk-a-secret-of-mine")
    line, code = last_words(raised(KeyError("x")), arguments, "servetwin 1")
    assert code == OUR_FAULT
    named = re.search(r"KeyError.; (.+) has what to report", line)
    assert named
    report = Path(named[1]).read_text()
    assert "servetwin 1, Python 3" in report
    assert "in raised" in report
    assert "loadtest http://host" in report
    assert "sk-a" not in report


def test_a_full_disk_takes_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    line, code = last_words(raised(KeyError("x")), (), "servetwin 1")
    assert (line, code) == ("an error of servetwin itself (KeyError)", OUR_FAULT)
