"""Files are written whole; what a process left that was killed goes with the next one."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from servetwin.workloads.files import Drafts, document
from tests.support.paths import ROOT

KILLED_WHILE_IT_WRITES = """
import os, signal, sys
from pathlib import Path
from servetwin.workloads.files import Drafts

with Drafts() as drafts:
    drafts.of(Path(sys.argv[1])).write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def save(path: Path) -> None:
    with Drafts() as drafts:
        drafts.of(path).write_text("whole")


def test_the_draft_of_a_killed_process_goes_with_the_next_save(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED_WHILE_IT_WRITES, str(tmp_path / "run.json")]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    (draft,) = names_in(tmp_path)
    assert draft.startswith(".run.json.")
    save(tmp_path / "other.json")
    assert names_in(tmp_path) == ["other.json"]


def test_no_other_hidden_file_goes(tmp_path: Path) -> None:
    """Neither those of a live process, nor of another machine, nor of another program."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    node = os.uname().nodename
    kept = [
        f".a.json.{os.getppid()}.{node}.draft", f".a.json.{ended.pid}.not-{node}.draft",
        f".a.json.{ended.pid}.tmp", f".{node}.draft", f".a.json.b.{node}.draft",
    ]  # fmt: skip
    for name in kept:
        (tmp_path / name).write_text("")
    (tmp_path / f".a.json.{ended.pid}.{node}.draft").write_text("")
    save(tmp_path / "a.json")
    assert names_in(tmp_path) == sorted([*kept, "a.json"])


def test_two_files_of_a_folder_are_both_there(tmp_path: Path) -> None:
    with Drafts() as drafts:
        for name in ("a", "b"):
            drafts.of(tmp_path / name).write_text(name)
        assert len(names_in(tmp_path)) == 2
    assert names_in(tmp_path) == ["a", "b"]


def test_a_document_has_at_most_so_many_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("servetwin.workloads.files.MOST_DOCUMENT_BYTES", 5)
    path = tmp_path / "x"
    path.write_bytes(b"12345")
    assert document(path) == b"12345"
    path.write_bytes(b"123456")
    with pytest.raises(OSError, match="more than 5 bytes"):
        document(path)
