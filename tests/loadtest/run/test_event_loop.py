"""A load test that ends early keeps what it measured, and ends soon."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from servetwin.loadtest.run.event_loop import quiet_gc, signals_deferred, stop_signals
from servetwin.sim.records.run import SUMMARY, Run, load_run
from servetwin.sim.records.run_claim import CLAIM
from servetwin.workloads.readers.native import write_trace
from tests.support.mock_endpoint import evenly
from tests.support.mock_load import refused_for_s
from tests.support.mock_process import mock_process, servetwin_process
from tests.support.paths import ROOT

pytestmark = pytest.mark.slow

TOKENS = 10
FILES = [
    CLAIM, "meta.json", "report.csv", "report.html", "report.json", "requests.parquet",
    "scenario.yaml", "steps.parquet", SUMMARY,
]  # fmt: skip


def gone_within_s() -> float:
    """Two seconds, where no other process needs the cores."""
    return 2.0 if os.getloadavg()[0] < (os.cpu_count() or 1) else 10.0


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
Mock = tuple[subprocess.Popen[str], str]


@pytest.fixture(scope="module")
def shared_mock() -> Iterator[Mock]:
    with mock_process("--ttft-ms", 20, "--itl-ms", 5) as found:
        yield found


def load_test(mock: Mock, tmp_path: Path, happens: Happening, *options: object) -> Ended:
    """``happens`` to the load test and the mock once the first request has ended."""
    trace, folder = tmp_path / "t.jsonl", tmp_path / "run"
    write_trace(evenly(1000, 50, TOKENS), trace)
    server, url = mock
    process = servetwin_process("loadtest", url, "--trace", trace, "--out", folder, *options)
    assert process.stderr
    said = iter(process.stderr.readline, "")
    before = next(line for line in said if "s of arrivals: " in line and ": 0 of" not in line)
    happens(process, server)
    at_s = time.monotonic()
    out, err = process.communicate(timeout=60)
    took_s = time.monotonic() - at_s
    server.send_signal(signal.SIGCONT)
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
    """As a terminal does it: every process of the group gets it."""
    os.killpg(process.pid, signal.SIGINT)


@pytest.mark.quiet
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
    happens: Happening, options: Sequence[object], shared_mock: Mock, tmp_path: Path
) -> None:
    ended = load_test(shared_mock, tmp_path, happens, *options)
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
    assert f"CUT OFF: interrupted; {cut_off} flight" in ended.out
    kept = f"interrupted; {len(finished)} of 1000 requests kept in {ended.folder}"
    assert ended.err[-1] == f"servetwin: {kept}"
    assert not any("Traceback" in line for line in ended.err)


@pytest.mark.quiet
def test_a_killed_server_ends_the_test(tmp_path: Path) -> None:
    """The time without a connection is short here: the load lasts 20 s."""
    with mock_process("--ttft-ms", 20, "--itl-ms", 5) as mock:
        ended = load_test(
            mock, tmp_path, lambda process, server: server.kill(), "--give-up-after", "200ms"
        )
    assert ended.code == 1
    assert ended.took_s <= gone_within_s()
    requests, delivered = ended.run.requests, ended.run.extra["delivered"]
    finished = requests[requests["status"] == "finished"]
    assert set(finished["output_tokens"]) == {TOKENS}
    assert 0.2 <= refused_for_s(requests) < 0.2 + 1.0
    (outage,) = delivered["outages"]
    assert outage["to_s"] is None
    broken = delivered["failures"].get("broken_stream", 0)
    assert 0 <= outage["lost"] - delivered["failures"]["connect"] <= broken
    assert delivered["failures"].get("broken_stream", 0) <= 10
    assert delivered["failures"]["cancelled"] == delivered["not_sent"] > 0
    assert len(finished) + sum(delivered["failures"].values()) == 1000
    assert delivered["interrupted"] is False
    assert ended.err[-1] == (
        "servetwin: stopped: the endpoint was gone (no connection for 0.2 s); "
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
    """In ``signals_deferred`` a Ctrl-C is noted; the next one is what it always was."""
    with signals_deferred() as deferred:
        assert not deferred.is_set()
        signal.raise_signal(signal.SIGINT)
        assert deferred.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


SAVING = """
import os, signal
from pathlib import Path
import servetwin.app.tasks.load_test, sim.records.run
from servetwin.app.cli import main
save = sim.records.run.Run.save
def slow(self, folder):
    os.kill(os.getpid(), signal.SIGTERM)
    return save(self, folder)
sim.records.run.Run.save = slow
main()
"""


def test_a_signal_while_the_run_is_saved_takes_nothing(tmp_path: Path) -> None:
    write_trace(evenly(3, 50, 2), tmp_path / "t.jsonl")
    with mock_process("--ttft-ms", 5, "--itl-ms", 1) as (_, url):
        arguments = ["loadtest", url, "--trace", tmp_path / "t.jsonl", "--out", tmp_path / "run"]
        done = subprocess.run(
            [sys.executable, "-c", SAVING, *map(str, arguments)],
            cwd=ROOT, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "3 requests: 3 finished" in done.stdout
    assert load_run(tmp_path / "run").requests["status"].tolist() == ["finished"] * 3


class SignalsWhenCollected:
    """A cycle that only the garbage collector ends, and that raises a signal as it ends."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def test_a_signal_during_the_collection_of_garbage_is_not_lost() -> None:
    SignalsWhenCollected()
    with pytest.raises(KeyboardInterrupt), quiet_gc():
        pass
    assert gc.isenabled()


@pytest.mark.usefixtures("_usual_signals")
def test_the_handlers_from_before_come_back() -> None:
    """A loop alone would leave SIGTERM to kill the process between two load tests."""

    async def stopped() -> None:
        with stop_signals(lambda: None):
            assert signal.getsignal(signal.SIGTERM) is not signal.default_int_handler

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        asyncio.run(stopped())
        assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGTERM, before)
