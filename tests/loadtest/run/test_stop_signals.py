"""A load test that ends early, or on a full disk: what it measured is kept, and it is gone soon."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.run.stop_signals import signals_deferred
from sim.records.run import NotSaved, Run, RunError, load_run
from sim.records.run_folder import SUMMARY
from tests.support.full_disk import files_at_most
from tests.support.mock_endpoint import evenly
from tests.support.paths import ROOT, SAMPLE
from workloads.native import write_trace

pytestmark = pytest.mark.quiet

TOKENS = 10
FILES = ["meta.json", "requests.parquet", "scenario.yaml", "steps.parquet", SUMMARY]


def gone_within_s() -> float:
    """Two seconds, where nobody else wants the cores."""
    return 2.0 if os.getloadavg()[0] < (os.cpu_count() or 1) else 10.0


def servetwin(*arguments: object, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "app.cli", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@contextmanager
def mock(*options: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = servetwin("serve", "--mock", "--port", 0, *options)
    assert process.stdout
    try:
        yield process, process.stdout.readline().split()[3]
    finally:
        process.kill()
        process.communicate()


@dataclass
class Ended:
    """A load test of 1,000 requests at 50/s that something happened to after a second or more."""

    code: int
    out: str
    err: list[str]
    took_s: float
    folder: Path

    @property
    def run(self) -> Run:
        return load_run(self.folder)


Happening = Callable[[subprocess.Popen[str], subprocess.Popen[str]], None]


def load_test(tmp_path: Path, happens: Happening, *options: object) -> Ended:
    """``happens`` to the load test and the mock once the first request has ended."""
    trace, folder = tmp_path / "t.jsonl", tmp_path / "run"
    write_trace(evenly(1000, 50, TOKENS), trace)
    with mock("--ttft-ms", 20, "--itl-ms", 5) as (server, url):
        process = servetwin("loadtest", url, "--trace", trace, "--out", folder, *options)
        assert process.stderr
        said = iter(process.stderr.readline, "")
        before = next(line for line in said if "s of arrivals: " in line and ": 0 of" not in line)
        happens(process, server)
        at_s = time.monotonic()
        out, err = process.communicate(timeout=60)
        took_s = time.monotonic() - at_s
    return Ended(process.returncode, out, [before, *err.splitlines()], took_s, folder)


def tell(number: signal.Signals) -> Happening:
    def happens(process: subprocess.Popen[str], server: subprocess.Popen[str]) -> None:
        process.send_signal(number)

    return happens


def freeze_and_interrupt(process: subprocess.Popen[str], server: subprocess.Popen[str]) -> None:
    """At 50 requests/s the 0.2 s bring ten that get no answer."""
    server.send_signal(signal.SIGSTOP)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)


def interrupt_all(process: subprocess.Popen[str], server: subprocess.Popen[str]) -> None:
    """As a terminal does it: whoever is in the group has it."""
    os.killpg(process.pid, signal.SIGINT)


@pytest.mark.parametrize(
    ("happens", "options"),
    [
        (tell(signal.SIGINT), ()),
        (tell(signal.SIGTERM), ()),
        (freeze_and_interrupt, ()),
        (tell(signal.SIGTERM), ("--processes", 2)),
        (interrupt_all, ("--processes", 2)),
    ],
    ids=["Ctrl-C", "SIGTERM", "frozen server", "SIGTERM, 2 processes", "Ctrl-C, 2 processes"],
)
def test_a_signal_keeps_what_was_measured(
    happens: Happening, options: Sequence[object], tmp_path: Path
) -> None:
    ended = load_test(tmp_path, happens, *options)
    assert ended.code == 1
    assert ended.took_s <= gone_within_s()
    requests, delivered = ended.run.requests, ended.run.extra["delivered"]
    finished = requests[requests["status"] == "finished"]
    assert len(requests) == 1000
    assert len(finished) >= 1
    assert set(finished["output_tokens"]) == {TOKENS}
    assert set(finished["chunk_s"].map(len)) == {TOKENS}
    assert set(requests["error"].dropna()) == {"cancelled"}
    assert delivered["not_sent"] == requests["sent_s"].isna().sum() > 0
    assert delivered["in_flight"] == 1000 - len(finished) - delivered["not_sent"]
    assert delivered["in_flight"] >= (5 if happens is freeze_and_interrupt else 0)
    assert delivered["interrupted"] is True
    assert sorted(path.name for path in ended.folder.iterdir()) == FILES
    cut_off = f"{delivered['not_sent']} requests were not sent, {delivered['in_flight']} were in"
    assert f"ENDED EARLY: {cut_off} flight" in ended.out
    kept = f"interrupted: {len(finished)} of 1000 requests kept in {ended.folder}"
    assert ended.err[-1] == f"servetwin: {kept}"
    assert not any("Traceback" in line for line in ended.err)


def test_a_killed_server_ends_the_test(tmp_path: Path) -> None:
    """Ten refusals in a row at 50/s take 0.2 s."""
    ended = load_test(tmp_path, lambda process, server: server.kill())
    assert ended.code == 1
    assert ended.took_s <= gone_within_s()
    requests, delivered = ended.run.requests, ended.run.extra["delivered"]
    finished = requests[requests["status"] == "finished"]
    assert set(finished["output_tokens"]) == {TOKENS}
    assert delivered["failures"]["connect"] == 10
    assert delivered["failures"].get("broken_stream", 0) <= 10
    assert delivered["failures"]["cancelled"] == delivered["not_sent"] > 0
    assert len(finished) + sum(delivered["failures"].values()) == 1000
    assert delivered["interrupted"] is False
    assert ended.err[-1] == (
        "servetwin: stopped: the endpoint was gone (10 refused connections in a row); "
        f"{len(finished)} of 1000 requests kept in {ended.folder}"
    )


@pytest.fixture
def _usual_signals() -> Iterator[None]:
    """A shell starts what runs in its background without Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_usual_signals")
def test_the_first_signal_waits_and_the_second_does_not() -> None:
    """In signals_wait a Ctrl-C is noted; the next one is what it always was."""
    with signals_deferred() as deferred:
        assert not deferred.came
        signal.raise_signal(signal.SIGINT)
        assert deferred.came
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


SAVING = """
import os, signal
from pathlib import Path
import app.commands.loadtest as command, sim.records.run
from app.cli import main
save = sim.records.run.Run.save
def slow(self, folder):
    os.kill(os.getpid(), signal.SIGTERM)
    return save(self, folder)
sim.records.run.Run.save = slow
main()
"""


def test_a_signal_while_the_run_is_saved_takes_nothing(tmp_path: Path) -> None:
    write_trace(evenly(3, 50, 2), tmp_path / "t.jsonl")
    with mock("--ttft-ms", 5, "--itl-ms", 1) as (_, url):
        arguments = ["loadtest", url, "--trace", tmp_path / "t.jsonl", "--out", tmp_path / "run"]
        done = subprocess.run(
            [sys.executable, "-c", SAVING, *map(str, arguments)],
            cwd=ROOT, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "3 requests: 3 finished" in done.stdout
    assert load_run(tmp_path / "run").requests["status"].tolist() == ["finished"] * 3


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


def a_run(requests: int = 300) -> Run:
    """Random stamps do not compress: 8 bytes each stay 8 bytes."""
    rng = np.random.default_rng(0)
    stamps = pd.DataFrame(
        {
            "request_id": [f"r{index}" for index in range(requests)],
            "status": "finished",
            **{
                name: rng.random(requests)
                for name in ("scheduled_s", "first_token_s", "last_token_s")
            },
            **dict.fromkeys(("prompt_tokens", "output_tokens", "cached_tokens"), 3),
            "preemptions": 0,
            **{name: rng.random(requests) for name in ("ttft_s", "tpot_s", "e2e_s")},
        }
    )
    steps = pd.DataFrame({"start_s": rng.random(2 * requests)})
    return Run("simulation", stamps, steps, {"seed": 3}, {"cores": 2})


def sizes() -> dict[str, int]:
    """Bytes of each file of that run."""
    with TemporaryDirectory() as folder:
        return {path.name: path.stat().st_size for path in a_run().save(Path(folder)).iterdir()}


SIZES = sizes()
LARGEST = max(SIZES.values())


@given(room=st.integers(0, LARGEST + 1))
def test_whatever_fits_is_whole_and_nothing_else_is_there(room: int) -> None:
    run = a_run()
    with TemporaryDirectory() as place:
        folder = Path(place) / "run"
        error = None
        with pytest.MonkeyPatch.context() as patch, files_at_most(room):
            patch.setattr("tempfile.tempdir", place)
            try:
                run.save(folder)
            except NotSaved as caught:
                error = caught
        there = {path.name: path.read_bytes() for path in folder.iterdir()}
        others = [path for path in Path(place).iterdir() if path != folder]
        fits = {name for name, size in SIZES.items() if size <= room}
        assert set(there) == (fits if fits == set(SIZES) else fits - {SUMMARY})
        assert all(len(data) == SIZES[name] for name, data in there.items() if name != SUMMARY)
        assert (error is None) == (fits == set(SIZES))
        assert others == ([error.instead] if error and error.instead else [])


def test_an_old_summary_does_not_speak_for_new_files(tmp_path: Path) -> None:
    a_run(5).save(tmp_path)
    with files_at_most(SIZES["meta.json"]), pytest.raises(NotSaved):
        a_run().save(tmp_path)
    with pytest.raises(RunError, match="not a readable run folder"):
        load_run(tmp_path)


def test_the_message_says_which_file_how_much_and_where_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    size = SIZES["requests.parquet"]
    with files_at_most(size - 1), pytest.raises(NotSaved) as caught:
        a_run().save(tmp_path / "run")
    assert size == LARGEST
    assert caught.value.exit_code == 1
    assert str(caught.value) == (
        f"{tmp_path}/run/requests.parquet: its {size} bytes could not be written (File too large); "
        f"{caught.value.instead} has the run without requests.parquet"
    )
    with files_at_most(0), pytest.raises(NotSaved) as caught:
        a_run().save(tmp_path / "run")
    assert caught.value.instead is None
    assert str(caught.value).endswith(
        "(File too large), nor could meta.json, scenario.yaml, steps.parquet; "
        f"nor could anything be written to {tmp_path}"
    )


def test_a_place_that_is_none_costs_no_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "file").write_text("")
    with pytest.raises(NotSaved, match=r"requests\.parquet: .* \(Not a directory\)") as caught:
        a_run().save(tmp_path / "file" / "run")
    assert caught.value.instead
    pd.testing.assert_frame_equal(load_run(caught.value.instead).requests, a_run().requests)


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
    process = servetwin(*arguments, "--out", disk / "run", TMPDIR=str(disk.parent))
    out, err = process.communicate(timeout=60)
    there = {path.name for path in (disk / "run").iterdir()}
    for name in there & {"requests.parquet", "steps.parquet"}:
        pd.read_parquet(disk / "run" / name)
    return OnFullDisk(process.returncode, out, err.splitlines(), there)


@pytest.mark.parametrize(
    ("leave_bytes", "there"), [(0, set[str]()), (16_384, {"meta.json", "scenario.yaml"})]
)
def test_a_load_test_on_a_full_disk(
    leave_bytes: int, there: set[str], small_disk: Path, tmp_path: Path
) -> None:
    write_trace(evenly(30, 100, 4), tmp_path / "t.jsonl")
    with mock("--ttft-ms", 5, "--itl-ms", 1) as (_, url):
        done = command_on(small_disk, leave_bytes, "loadtest", url, "--trace", tmp_path / "t.jsonl")
    assert done.code == 1
    assert there <= done.there < set(FILES) - {SUMMARY}
    assert "30 requests: 30 finished" in done.out
    assert "TTFT, ms" in done.out
    assert done.err[-1].startswith(f"servetwin: {small_disk}/run/requests.parquet: its ")
    assert "bytes could not be written (No space left on device)" in done.err[-1]
    assert f"files: {done.instead}" in done.out
    assert load_run(done.instead).requests["status"].tolist() == ["finished"] * 30
    assert not any("Traceback" in line for line in done.err)


def test_a_simulation_on_a_full_disk(small_disk: Path) -> None:
    sample = SAMPLE
    done = command_on(small_disk, 45_056, "replay", sample, "--replications", 0)
    assert done.code == 1
    assert "requests.parquet" in done.there
    assert SUMMARY not in done.there
    assert "240 requests: 240 finished" in done.out
    assert done.out.splitlines()[-1] == f"run folder: {done.instead}"
    assert done.err[-1].startswith(f"servetwin: {small_disk}/run/steps.parquet: its ")
    assert len(load_run(done.instead).requests) == 240
