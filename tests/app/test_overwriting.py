"""What ``--out`` has is not overwritten by any command, and that is known before any work."""

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from servetwin.workloads.readers.native import write_trace
from tests.support import recorded_files
from tests.support.command import commands, refused, servetwin
from tests.support.mock_endpoint import evenly, mocked, plan, truths
from tests.support.paths import SAMPLE

REPLAY = ("replay", SAMPLE, "--limit", 5, "--replications", 0)
COMPARE = ("replay", "compare", "static", "vllm-v1", *REPLAY[1:])
FOLDERS: list[Sequence[object]] = [REPLAY, COMPARE, ("verify",), ("demo",)]
PROFILES: list[Sequence[object]] = [("calibrate",)]
WITHOUT = {"report"}
"""Writes a page, which is made again in a moment."""


def with_option(option: str) -> set[str]:
    """The commands that take an option."""
    found = set()
    for name, command in commands().commands.items():
        inner = {f"{name} {sub}": one for sub, one in getattr(command, "commands", {}).items()}
        for full, each in (inner or {name: command}).items():
            if any(option in parameter.opts for parameter in each.params):
                found.add(full)
    return found


def test_every_command_that_writes_results_says_what_becomes_of_older_ones() -> None:
    assert with_option("--overwrite") == (with_option("--out") | with_option("--plot")) - WITHOUT
    assert with_option("--overwrite") >= {"replay", "loadtest", "loadtest import", "verify", "demo"}


@pytest.mark.parametrize("command", FOLDERS, ids=lambda command: command[0])
def test_a_folder_of_others_is_left_alone(command: Sequence[object], tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("")
    for options in ((), ("--overwrite",)):
        said = refused(*command, "--out", tmp_path, *options)
        assert "has files and is no run folder" in said
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("command", PROFILES, ids=lambda command: command[0])
def test_a_file_of_others_is_left_alone(command: Sequence[object], tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text("{}")
    for options in ((), ("--overwrite",)):
        assert "is no profile" in refused(*command, "--out", tmp_path / "p.json", *options)
    (tmp_path / "p.json").write_text('{"layouts": {}}')
    assert "--overwrite replaces it" in refused(*command, "--out", tmp_path / "p.json")


def test_a_trace_is_replaced_where_it_is_asked_for(tmp_path: Path) -> None:
    given = ("workload", "generate", "--requests", 5, "--out", tmp_path / "t.jsonl")
    assert servetwin(*given).code == 0
    assert "t.jsonl: is a trace; --overwrite replaces it" in refused(*given)
    assert servetwin(*given, "--seed", 1, "--overwrite").code == 0
    (tmp_path / "t.jsonl").write_text("{}\n")
    assert "is there, and is no trace" in refused(*given, "--overwrite")
    assert (tmp_path / "t.jsonl").read_text() == "{}\n"


@pytest.mark.parametrize("first", [REPLAY, COMPARE], ids=["replay", "compare"])
@pytest.mark.parametrize("second", [REPLAY, COMPARE], ids=["replay", "compare"])
def test_a_run_is_replaced_as_a_whole(
    first: Sequence[object], second: Sequence[object], tmp_path: Path
) -> None:
    assert servetwin(*first, "--out", tmp_path / "run").code == 0
    (tmp_path / "run" / "mine.txt").write_text("")
    assert "has a run" in refused(*second, "--out", tmp_path / "run")
    assert servetwin(*second, "--out", tmp_path / "run", "--overwrite").code == 0
    assert servetwin(*second, "--out", tmp_path / "new").code == 0
    assert names(tmp_path / "run") == names(tmp_path / "new") | {"mine.txt"}


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_a_run_that_cannot_begin_takes_none_away(tmp_path: Path) -> None:
    assert servetwin(*REPLAY, "--out", tmp_path / "run").code == 0
    before = names(tmp_path / "run")
    refused("replay", tmp_path / "none.jsonl", "--out", tmp_path / "run", "--overwrite")
    refused(*REPLAY, "--batching", "none", "--out", tmp_path / "run", "--overwrite")
    assert names(tmp_path / "run") == before


def test_an_import_replaces_a_run_where_it_is_asked_to(tmp_path: Path) -> None:
    stamps = tmp_path / "measured.jsonl"
    stamps.write_text(recorded_files.engine_stamps())
    given = ("loadtest", "import", stamps, "--out", tmp_path / "run")
    assert servetwin(*given).code == 0
    assert "--overwrite replaces it" in refused(*given)
    assert servetwin(*given, "--overwrite").code == 0


def test_a_load_test_sends_nothing_where_its_folder_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_trace(evenly(3, 50, 2), tmp_path / "t.jsonl")
    monkeypatch.chdir(tmp_path)
    with mocked(plan(ttft_ms=5, itl_ms=1)) as (server,):
        given = ("loadtest", server.url, "--trace", "t.jsonl")
        assert servetwin(*given, "--out", "run").code == 0
        assert "has a run; --overwrite" in servetwin(*given, "--out", "run").err
        assert len(truths(server)) == 3
        assert servetwin(*given, "--out", "run", "--overwrite").code == 0
        monkeypatch.setattr(time, "strftime", lambda *_: "loadtest-now")
        assert servetwin(*given).code == servetwin(*given).code == 0
    assert sorted(path.name for path in Path("runs").iterdir()) == [
        "loadtest-now",
        "loadtest-now-2",
    ]
