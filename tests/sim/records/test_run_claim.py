"""Whose a folder is: no run replaces another one, or files of others, unless it was asked to."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from servetwin.sim.records.run_claim import CLAIM, ClaimError, claimed_new_run, claimed_run
from tests.support.paths import ROOT

WRITER = """
import sys, time
from pathlib import Path
from servetwin.sim.records.run_claim import claimed_run
with claimed_run(Path(sys.argv[1])) as claim:
    folder = claim.begin()
    for name in ("trace.jsonl", "level/requests.parquet", "level/odd.bin"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("dead")
    (folder / "level" / "meta.json").write_text('{"kind": "loadtest"}')
    print("ready", flush=True)
    time.sleep(60)
"""


def a_run(folder: Path, *names: str, **options: bool) -> None:
    with claimed_run(folder, **options) as claim:
        claim.begin()
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(name)


def files(folder: Path) -> set[str]:
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    return found - {CLAIM}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "mine"


@pytest.fixture
def writer(folder: Path) -> "subprocess.Popen[str]":
    """A process that writes a run."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_run_needs_overwrite_to_be_replaced_and_none_of_it_is_left(folder: Path) -> None:
    a_run(folder, "summary.json", "level-1/requests.parquet", "level-2/new.kind")
    with pytest.raises(ClaimError, match="has a run; --overwrite replaces it"):
        a_run(folder, "summary.json")
    assert files(folder) == {"summary.json", "level-1/requests.parquet", "level-2/new.kind"}
    a_run(folder, "summary.json", "level-1/x", overwrite=True)
    assert files(folder) == {"summary.json", "level-1/x"}
    assert not (folder / "level-2").exists()


def test_files_of_others_stay_through_many_runs(folder: Path) -> None:
    a_run(folder, "summary.json")
    for name in ("notes.txt", "notes/summary.json", "trace.bak"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("mine")
    for name in ("a", "b"):
        a_run(folder, name, overwrite=True)
        assert files(folder) == {name, "notes.txt", "notes/summary.json", "trace.bak"}


def test_a_file_of_others_is_not_written_over(folder: Path) -> None:
    a_run(folder, "summary.json")
    (folder / "trace.jsonl").write_text("mine")
    with pytest.raises(ClaimError, match=r"trace\.jsonl is there, and no run has written it"):
        a_run(folder, "trace.jsonl", overwrite=True)
    assert files(folder) == {"summary.json", "trace.jsonl"}


@pytest.mark.parametrize("options", [{}, {"overwrite": True}, {"resume": True}])
@pytest.mark.parametrize(
    ("name", "text"), [("photo.png", ""), ("meta.json", "{}"), ("meta.json", "[")]
)
def test_a_folder_that_is_no_run_is_refused(
    options: dict[str, bool], name: str, text: str, folder: Path
) -> None:
    folder.mkdir(parents=True)
    (folder / name).write_text(text)
    with pytest.raises(ClaimError, match="has files and is no run folder"):
        a_run(folder, **options)
    assert os.listdir(folder) == [name]


def test_a_folder_of_runs_is_no_run(folder: Path) -> None:
    a_run(folder, "meta.json")
    with pytest.raises(ClaimError, match="is no run folder"):
        a_run(folder.parent, overwrite=True)


def test_a_run_without_a_claim_is_known_by_its_files(folder: Path) -> None:
    for name in ("", "level/", "notes/"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "summary.json").write_text("{}")
    for name in ("", "level/"):
        (folder / name / "meta.json").write_text('{"kind": "simulation"}')
    (folder / "level" / "mine.txt").write_text("")
    with pytest.raises(ClaimError, match="has a run"):
        a_run(folder)
    assert not (folder / CLAIM).exists()
    a_run(folder, "new", overwrite=True)
    assert files(folder) == {"new", "notes/summary.json", "level/mine.txt"}


def test_a_run_in_progress_is_left_alone(folder: Path, writer: "subprocess.Popen[str]") -> None:
    before = files(folder)
    said = f"process {writer.pid} writes there"
    for options in ({}, {"overwrite": True}, {"resume": True}):
        with pytest.raises(ClaimError, match=said):
            a_run(folder, "x", **options)
    with pytest.raises(ClaimError, match=said):
        a_run(folder / "below", "x")
    assert files(folder) == before
    writer.kill()
    writer.communicate()


def test_the_claim_of_a_killed_process_is_free(
    folder: Path, writer: "subprocess.Popen[str]"
) -> None:
    (folder / "notes").mkdir()
    (folder / "notes" / "trace.jsonl").write_text("mine")
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    with pytest.raises(ClaimError, match="has a run; --overwrite"):
        a_run(folder)
    a_run(folder, "new", overwrite=True)
    assert files(folder) == {"new", "notes/trace.jsonl", "level/odd.bin"}


def test_a_run_is_gone_on_with(folder: Path) -> None:
    a_run(folder, "policy/forecast.json")
    a_run(folder, "policy/verdict.json", resume=True)
    assert files(folder) == {"policy/forecast.json", "policy/verdict.json"}
    a_run(folder, "new", overwrite=True)
    assert files(folder) == {"new"}


def test_what_never_begins_takes_nothing_away(folder: Path) -> None:
    a_run(folder, "summary.json")
    with claimed_run(folder, overwrite=True):
        pass
    with pytest.raises(ClaimError, match="has a run"):
        a_run(folder)
    assert files(folder) == {"summary.json"}


def test_what_comes_to_nothing_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), claimed_run(tmp_path / "a" / "b"):
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []


def test_what_fails_half_way_is_a_run(folder: Path) -> None:
    def fail_after(name: str) -> None:
        with claimed_run(folder):
            (folder / name).write_text("")
            raise ValueError("half")

    with pytest.raises(ValueError, match="half"):
        fail_after("trace.jsonl")
    assert json.loads((folder / CLAIM).read_text())["files"] == ["trace.jsonl"]


@pytest.mark.parametrize("place", ["file", "file/below", "x" * 300])
def test_an_impossible_place_is_refused(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ClaimError, match=re.escape(f"{tmp_path / place}: cannot be made (")):
        a_run(tmp_path / place)
    with pytest.raises(ClaimError, match="cannot be made"), claimed_new_run(tmp_path / "file/new"):
        pass
    assert (tmp_path / "file").read_text() == "mine"


def test_new_runs_of_one_second_have_folders_of_their_own(tmp_path: Path) -> None:
    with claimed_new_run(tmp_path / "run") as first, claimed_new_run(tmp_path / "run") as second:
        (first.begin() / "a").write_text("")
        (second.begin() / "b").write_text("")
    assert (first.folder.name, second.folder.name) == ("run", "run-2")
    with claimed_new_run(tmp_path / "run") as third:
        assert third.folder.name == "run-3"
    assert sorted(os.listdir(tmp_path)) == ["run", "run-2"]


def test_one_of_many_at_once_gets_the_folder(folder: Path) -> None:
    code = WRITER.replace("time.sleep(60)", "time.sleep(1)")
    command = [sys.executable, "-c", code, str(folder)]
    pipe = subprocess.PIPE
    started = [
        subprocess.Popen(command, cwd=ROOT, text=True, stdout=pipe, stderr=pipe) for _ in range(4)
    ]
    said = [process.communicate(timeout=60) for process in started]
    assert sum(out == "ready\n" for out, _ in said) == 1
    assert sum("ClaimError" in err for _, err in said) == 3
