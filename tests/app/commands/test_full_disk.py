"""Commands on a disk that is full: one line, nothing under a final name, the run elsewhere."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from servetwin.sim.records.run import JOURNAL, load_run
from servetwin.sim.records.run_claim import CLAIM
from servetwin.workloads.readers.native import write_trace
from tests.support.command import SERVER
from tests.support.mock_endpoint import evenly
from tests.support.mock_process import mock_process, servetwin_process
from tests.support.paths import SAMPLE


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """64 KiB, no more."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only root may mount a small disk, and not everywhere")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def fill(disk: Path, leave_bytes: int) -> None:
    (disk / "filler").write_bytes(bytes(65_536 - leave_bytes))


@dataclass
class OnFullDisk:
    """A command whose ``--out`` is on the small disk."""

    code: int
    out: str
    err: list[str]
    there: set[str]

    @property
    def instead(self) -> Path:
        return Path(self.err[-1].partition("; ")[2].removesuffix(" has the whole run"))


def command_on(disk: Path, leave_bytes: int, *arguments: object) -> OnFullDisk:
    """Its temporary directory is beside the disk."""
    fill(disk, leave_bytes)
    process = servetwin_process(*arguments, "--out", disk / "run", TMPDIR=str(disk.parent))
    out, err = process.communicate(timeout=60)
    there = {path.name for path in (disk / "run").glob("*")} - {CLAIM}
    return OnFullDisk(process.returncode, out, err.splitlines(), there)


@pytest.mark.slow
@pytest.mark.parametrize("leave_bytes", [0, 16_384])
def test_a_load_test_on_a_full_disk(leave_bytes: int, small_disk: Path, tmp_path: Path) -> None:
    write_trace(evenly(30, 100, 4), tmp_path / "t.jsonl")
    with mock_process("--ttft-ms", 5, "--itl-ms", 1) as (_, url):
        done = command_on(small_disk, leave_bytes, "loadtest", url, "--trace", tmp_path / "t.jsonl")
    assert done.code == 1
    assert done.there <= {JOURNAL}
    assert "30 requests: 30 finished" in done.out
    assert "TTFT ms" in done.out
    assert done.err[-1].startswith(f"servetwin: {small_disk}/run/requests.parquet: its ")
    assert "bytes could not be written (No space left on device)" in done.err[-1]
    assert f"files: {done.instead}" in done.out
    assert load_run(done.instead).requests["status"].tolist() == ["finished"] * 30
    assert not any("Traceback" in line for line in done.err)


def test_a_simulation_on_a_full_disk(small_disk: Path) -> None:
    done = command_on(small_disk, 45_056, "replay", SAMPLE, *SERVER, "--replications", 0)
    assert done.code == 1
    assert not done.there
    assert "240 requests: 240 finished" in done.out
    assert done.out.splitlines()[-1] == f"run folder: {done.instead}"
    assert done.err[-1].startswith(f"servetwin: {small_disk}/run/steps.parquet: its ")
    assert len(load_run(done.instead).requests) == 240
