"""``servetwin replay --stream``: figures, folders, flat memory; disks that are full."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from servetwin.sim.long_runs import sketched_summary
from servetwin.sim.records.run import SUMMARY, load_run
from servetwin.sim.records.run_claim import CLAIM
from servetwin.workloads.readers.native import write_trace
from tests.support.command import SERVER, refused, servetwin, with_server
from tests.support.full_disk import files_at_most
from tests.support.mock_endpoint import evenly
from tests.support.mock_process import mock_process, servetwin_process
from tests.support.paths import ROOT, SAMPLE

H100 = ("--profile", "llama-3-8b-h100")
MOST_BYTES = 400_000_000


def replay_json(*arguments: str) -> dict[str, Any]:
    done = servetwin("replay", *with_server(*arguments), "--json")
    assert done.code == 0, done.err
    summary: dict[str, Any] = json.loads(done.out)
    return summary


def azure_file(path: Path, requests: int, per_s: float) -> str:
    rng = np.random.default_rng(0)
    stamps = np.datetime64("2024-05-10T00:00:00", "us") + (
        np.cumsum(rng.exponential(1e6 / per_s, requests)).astype("timedelta64[us]")
    )
    prompts, outputs = rng.integers(1, 900, requests), rng.integers(1, 9, requests)
    rows = zip(stamps.astype(str), prompts.tolist(), outputs.tolist(), strict=True)
    lines = (f"{at.replace('T', ' ')},{prompt},{output}\n" for at, prompt, output in rows)
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(lines))
    return str(path)


def test_figures_and_rows_are_those_of_a_replay_in_memory(tmp_path: Path) -> None:
    trace = azure_file(tmp_path / "some.csv", 300, 20.0)
    streamed = replay_json("stream", trace, *H100, "--out", str(tmp_path / "streamed"))
    whole = replay_json(trace, *H100, "--replications", "0", "--out", str(tmp_path / "whole"))
    for name in ("requests", "makespan_s", "output_tokens", "policies", "cluster", "notes"):
        assert streamed[name] == whole[name]
    assert streamed["simulation"]["steps"] == whole["simulation"]["steps"]
    assert streamed["ttft_s"]["max"] == whole["ttft_s"]["max"]
    ours, theirs = (load_run(tmp_path / name) for name in ("streamed", "whole"))
    pd.testing.assert_frame_equal(ours.requests, theirs.requests)
    pd.testing.assert_frame_equal(ours.steps, theirs.steps)


def test_the_report_fits_100_columns_and_says_what_is_sketched() -> None:
    done = servetwin("replay", "stream", SAMPLE, *SERVER)
    assert done.code == 0, done.err
    assert max(map(len, done.out.splitlines())) <= 100
    assert "240 requests: 240 finished" in done.out
    assert "percentiles are sketched" in done.out


def test_a_run_folder_is_replaced_only_when_asked(tmp_path: Path) -> None:
    first = servetwin("replay", "stream", SAMPLE, *SERVER, "--out", tmp_path / "run")
    assert first.code == 0, first.err
    assert "has a run; --overwrite" in refused(
        "replay", "stream", SAMPLE, *SERVER, "--out", tmp_path / "run"
    )
    again = servetwin("replay", "stream", SAMPLE, *SERVER, "--out", tmp_path / "run", "--overwrite")
    assert again.code == 0, again.err


def test_a_full_disk_is_one_line_and_no_run(tmp_path: Path) -> None:
    trace = azure_file(tmp_path / "some.csv", 50, 1.0)
    with files_at_most(1_000):
        done = servetwin("replay", "stream", trace, *H100, "--out", tmp_path / "run")
    assert done.code == 1
    (line,) = done.err.splitlines()
    assert "could not be written (" in line
    assert not (tmp_path / "run" / "summary.json").exists()


def test_a_trace_that_fails_in_the_middle_leaves_no_folder(tmp_path: Path) -> None:
    trace = Path(azure_file(tmp_path / "some.csv", 50, 1.0))
    with trace.open("a") as file:
        file.write("2024-05-10 23:00:00,5,x\n")
    said = refused("replay", "stream", trace, *SERVER, "--out", tmp_path / "run")
    assert said.endswith(f"{trace}:52: field 'GeneratedTokens': not an integer (\"x\")")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--kv-usage"],
            "--kv-usage: servetwin replay stream has no such option; servetwin replay",
        ),
        (["--replications", "5"], "has no such option; servetwin replay"),
        (["--estimate-cv", "0.5"], "has no such option; servetwin replay"),
        (["--prompt-scale", "2"], "has no such option; servetwin replay"),
        (["--spread-ties"], "has no such option; servetwin replay"),
        (["--closed-loop"], "--closed-loop needs the whole trace"),
        (["--limit", "0"], "a limit must be at least 1 request"),
        (["--start", "9", "--end", "3"], "a window wants 0 <= start < end"),
        (["--rate", "1", "--rate-scale", "2"], "exclude each other"),
    ],
)
def test_what_a_stream_cannot_do_is_one_line(options: list[str], said: str) -> None:
    assert said in refused("replay", "stream", SAMPLE, *with_server(*options))


def test_without_the_library_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketched_summary, "find_spec", lambda _: None)
    said = refused("replay", "stream", SAMPLE, *SERVER)
    assert said.endswith(
        "servetwin replay stream needs datasketches: pip install 'servetwin[stream]'"
    )


@pytest.mark.slow
def test_memory_stays_flat(tmp_path: Path) -> None:
    """A tenfold trace needs no more; kept as a whole, 200,000 requests need 300 MB more."""
    if not Path("/proc/self/status").exists():
        pytest.skip("needs the memory of a process by Linux; others count that of its parent too")
    code = (
        "import sys\n"
        "from servetwin.app.cli import main\n"
        "try: main()\n"
        "finally:\n"
        "    lines = open('/proc/self/status').read().splitlines()\n"
        "    print(*(line.split()[1] for line in lines if 'VmHWM' in line), file=sys.stderr)"
    )
    peaks = []
    for requests in (20_000, 200_000):
        trace = azure_file(tmp_path / f"{requests}.csv", requests, 50.0)
        out = str(tmp_path / f"run-{requests}")
        arguments = ["replay", "stream", trace, *H100, "--out", out]
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        peaks.append(1024 * int(done.stderr.split()[-1]))
    assert peaks[1] < MOST_BYTES
    assert peaks[1] < peaks[0] + 100_000_000


FILES = ["meta.json", "requests.parquet", "scenario.yaml", "steps.parquet", SUMMARY]


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
    for name in there & {"requests.parquet", "steps.parquet"}:
        pd.read_parquet(disk / "run" / name)
    return OnFullDisk(process.returncode, out, err.splitlines(), there)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("leave_bytes", "there"), [(0, set[str]()), (16_384, {"meta.json", "scenario.yaml"})]
)
def test_a_load_test_on_a_full_disk(
    leave_bytes: int, there: set[str], small_disk: Path, tmp_path: Path
) -> None:
    write_trace(evenly(30, 100, 4), tmp_path / "t.jsonl")
    with mock_process("--ttft-ms", 5, "--itl-ms", 1) as (_, url):
        done = command_on(small_disk, leave_bytes, "loadtest", url, "--trace", tmp_path / "t.jsonl")
    assert done.code == 1
    assert there <= done.there < set(FILES) - {SUMMARY}
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
    assert "requests.parquet" in done.there
    assert SUMMARY not in done.there
    assert "240 requests: 240 finished" in done.out
    assert done.out.splitlines()[-1] == f"run folder: {done.instead}"
    assert done.err[-1].startswith(f"servetwin: {small_disk}/run/steps.parquet: its ")
    assert len(load_run(done.instead).requests) == 240
