"""Where runs cannot be saved, commands print their reports all the same, and exit with 1."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import typer

from servetwin.app.tasks.report import keep_reports, write_html
from servetwin.app.tasks.verify import finish
from servetwin.app.verdict.verification import Verification
from servetwin.app.verdict.verifier import require_complete
from servetwin.loadtest.report.server_metrics import (
    COLUMNS,
    FILE_NAME,
    ServerWatch,
    save_server_metrics,
)
from servetwin.sim.records.run import (
    NotWritten,
    RunError,
    load_run,
    within,
    write_elsewhere,
    write_files,
)
from servetwin.workloads.errors import EndedEarly
from servetwin.workloads.reading import sample_path
from tests.support.command import SERVER, servetwin
from tests.support.figure_frames import load_test
from tests.support.full_disk import files_at_most
from tests.support.verifications import CONFIG, REQUESTS, a_black_box_verification, a_verification

NAMES = ("predicted", "measured-1", "measured-2")
WHOLE = " has the whole run"


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary directory, which has room."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    return place


@pytest.fixture
def no_folder(tmp_path: Path) -> Path:
    """A place where no folder can be made."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "runs"


def instead_of(line: str) -> Path:
    """The folder that a last line names."""
    assert line.endswith(WHOLE)
    return Path(line.partition("; ")[2].removesuffix(WHOLE))


@pytest.mark.parametrize(
    ("make", "loads"),
    [(a_verification, ["at-70"]), (a_black_box_verification, ["at-50", "at-70"])],
)
def test_a_verification_that_cannot_be_saved_is_printed(
    make: Callable[[], Verification],
    loads: list[str],
    no_folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(typer.Exit) as ended:
        finish([make()], no_folder, json=False)
    said = capsys.readouterr()
    assert ended.value.exit_code == 1
    assert "VERDICT: holds; " in said.out
    *_, folders, line = said.err.splitlines()
    assert line.startswith(f"servetwin: {no_folder}/")
    assert "(Not a directory)" in line
    instead = instead_of(line)
    assert folders == f"run folders: {instead}"
    runs = [instead / at / name for at in loads for name in NAMES]
    assert all(len(load_run(run).requests) == REQUESTS for run in runs)
    assert {"verdict.json", "profile.json"} <= {path.name for path in instead.iterdir()}


def test_every_policy_is_verified_though_none_can_be_saved(
    no_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configs = (CONFIG, replace(CONFIG, prefix_cache=True))
    with pytest.raises(typer.Exit):
        finish((a_verification(config) for config in configs), no_folder, json=False)
    said = capsys.readouterr()
    assert all(config.name in said.out for config in configs)
    lost = [line for line in said.err.splitlines() if line.startswith("servetwin: ")]
    assert len({instead_of(line) for line in lost}) == 2


def test_a_verification_that_is_saved_is_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finish([a_verification()], tmp_path / "runs", json=False)
    assert capsys.readouterr().err.splitlines()[-1] == f"run folders: {tmp_path / 'runs'}"
    assert (tmp_path / "runs" / CONFIG.name / "verdict.json").exists()


def test_a_comparison_that_cannot_be_saved_is_printed(tmp_path: Path) -> None:
    folder = load_test().save(tmp_path / "runs")
    for side in "ab":
        (folder / side).write_text("no folder can be made here")
    with sample_path() as sample:
        asked = ("replay", "compare", "vllm-v1", "sglang", sample, *SERVER, "--limit", REQUESTS)
        done = servetwin(*asked, "--replications", 1, "--out", folder, "--overwrite")
    assert done.code == 1
    assert "B - A" in done.out
    lost = [line for line in done.err.splitlines() if line.startswith("servetwin: ")]
    assert [re.findall(r"/runs/(.)/", line)[0] for line in lost] == ["b", "a"]
    assert all(len(load_run(instead_of(line)).requests) == REQUESTS for line in lost)


def test_a_load_test_that_was_cut_short_says_where_its_records_are(
    tmp_path: Path, no_folder: Path
) -> None:
    run = load_test(REQUESTS)
    run.requests.loc[0, "status"] = "cancelled"
    run.extra["delivered"] |= {"stopped": None, "failures": {}}
    with pytest.raises(EndedEarly, match=r"39 of 40 .*; records in .*/kept$"):
        require_complete(run, tmp_path / "kept")
    with pytest.raises(EndedEarly, match=r"39 of 40 .*Not a directory.* has the whole run$"):
        require_complete(run, no_folder)


def test_a_page_that_does_not_fit_is_one_line_and_no_part_of_it_stays(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    folder, page = load_test().save(tmp_path / "run"), tmp_path / "page.html"
    size_bytes = write_html([folder], None, page)["bytes"]
    with files_at_most(size_bytes - 1):
        done = servetwin("report", folder, "--out", page)
    (line,) = done.err.splitlines()
    assert (done.code, done.out) == (1, "")
    assert re.fullmatch(rf"servetwin: {page}: .* could not be written \(File too large\)", line)
    assert page.stat().st_size == size_bytes  # the page of before
    with pytest.raises(NotWritten, match="Is a directory"):
        write_html([folder], None, tmp_path)


class _Told(ServerWatch):
    """A watch that has seen these rows."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        super().__init__("http://127.0.0.1:9", 1.0)
        self._rows = rows

    def frame(self, zero_ns: int) -> pd.DataFrame:
        return pd.DataFrame(self._rows, columns=list(COLUMNS))


def test_server_metrics_are_there_whole_or_not_at_all(tmp_path: Path) -> None:
    rows = [{"at_s": 0.1, "running": 3.0}]
    place = tmp_path / FILE_NAME
    save_server_metrics(_Told(rows), load_test(), tmp_path)
    size_bytes = place.stat().st_size
    with files_at_most(size_bytes - 1), pytest.raises(RunError, match="File too large"):
        save_server_metrics(_Told(rows), load_test(), tmp_path)
    assert list(tmp_path.glob("*server_metrics*")) == []
    place.write_text("of an older run")
    save_server_metrics(_Told([]), load_test(), tmp_path)
    assert not place.exists()


def test_a_summary_speaks_for_its_own_folder_only(tmp_path: Path, temporary: Path) -> None:
    runs = {"a": 1000, "b": 10}
    files = [
        file
        for name, size in runs.items()
        for file in within(name, [("requests.parquet", bytes(size)), ("summary.json", b"{}")])
    ]
    with files_at_most(100):
        folder, lost = write_elsewhere(files)
        assert write_files(tmp_path / "runs", files) == lost
    assert folder is not None
    there = {str(path.relative_to(folder)) for path in folder.glob("*/*")}
    assert there == {"b/requests.parquet", "b/summary.json"}
    assert not list(tmp_path.glob("runs/*/*"))
    assert [(file.name, file.size_bytes) for file in lost] == [("a/requests.parquet", 1000)]
    with files_at_most(0):
        assert write_elsewhere(files[:1]) == (None, lost)
    assert list(temporary.iterdir()) == [folder]


def test_a_report_page_without_memory_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_thread(*given: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("servetwin.app.tasks.report.write_html", no_thread)
    run = load_test()
    run.save(tmp_path / "run")
    keep_reports([tmp_path / "run"], {}, run.requests, None)
    assert capsys.readouterr().err == "servetwin: no report.html: can't start new thread\n"
    assert (tmp_path / "run" / "report.json").exists()
