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


def test_no_file_is_placed_or_removed_where_one_of_them_does_not_fit(tmp_path: Path) -> None:
    (tmp_path / "a" / "requests").mkdir(parents=True)  # a folder where the file should be
    (tmp_path / "old").write_bytes(b"1")
    files = [("old", None), ("b/one", b"1"), ("a/requests", b"1234"), ("a/summary.json", b"{}")]
    (unwritten,) = write_files(tmp_path, files)
    assert (unwritten.name, unwritten.size_bytes) == ("a/requests", 4)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["old"]


def test_a_file_that_is_removed_and_written_is_written(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    assert write_files(tmp_path, [("a", None), ("a", b"2")]) == []
    assert (tmp_path / "a").read_bytes() == b"2"


def test_a_summary_elsewhere_stands_only_beside_all_files_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    long = f"a/{'x' * 300}"
    files = [(long, b"1234"), ("a/summary.json", b"{}"), ("b/summary.json", b"{}")]
    folder, (unwritten,) = write_elsewhere(files)
    assert folder is not None
    assert unwritten.name == long
    assert not (folder / "a" / "summary.json").exists()
    assert (folder / "b" / "summary.json").read_bytes() == b"{}"


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
