"""Files of a run: each is there whole or not at all, and the summary only where all others are."""

import tempfile
from pathlib import Path

import pytest

from servetwin.sim.records.run import Unwritten, within, write_elsewhere, write_files


def test_files_are_written_and_those_without_content_removed(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "a"
    assert write_files(folder, [("old.json", b"1"), ("b/c.txt", b"22")]) == []
    assert write_files(folder, [("old.json", None), ("missing", None)]) == []
    assert [str(path.relative_to(folder)) for path in folder.rglob("*")] == ["b", "b/c.txt"]


def test_a_summary_is_not_written_where_another_file_of_its_folder_is_missing(
    tmp_path: Path,
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "requests").mkdir()  # a folder where the file should be
    files = [("a/requests", b"1234"), ("a/summary.json", b"{}"), ("b/summary.json", b"{}")]
    (unwritten,) = write_files(tmp_path, files)
    assert (unwritten.name, unwritten.size_bytes) == ("a/requests", 4)
    assert not (tmp_path / "a" / "summary.json").exists()
    assert (tmp_path / "b" / "summary.json").read_bytes() == b"{}"


def test_no_draft_is_left_of_a_file_that_could_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    assert write_files(tmp_path, [("taken", b"1")])[0].reason
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_elsewhere_is_a_new_folder_of_the_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder, unwritten = write_elsewhere([("a.txt", b"abc")])
    assert folder is not None
    assert folder.parent == tmp_path
    assert (folder / "a.txt").read_bytes() == b"abc"
    assert unwritten == []


def test_a_folder_elsewhere_without_a_file_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert write_elsewhere([("x" * 300, b"abc")]) == (
        None,
        [Unwritten("x" * 300, 3, "File name too long")],
    )
    assert not list(tmp_path.iterdir())


def test_files_move_one_folder_deeper() -> None:
    assert list(within("measured", [("a", b"1"), ("b", None)])) == [
        ("measured/a", b"1"),
        ("measured/b", None),
    ]
