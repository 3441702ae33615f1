"""One schedule over several processes: the same records, one zero; a dead one loses its own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from servetwin.app.reports.load_test import render_report
from servetwin.loadtest.endpoint import probe
from servetwin.loadtest.plan.schedule import expected_peak_tokens_per_s
from servetwin.loadtest.plan.users import with_users
from servetwin.loadtest.run.client import LoadOptions, Progress, run_load_test
from servetwin.loadtest.run.journal import Journal
from servetwin.loadtest.run.worker_pool import (
    TOKENS_PER_S_A_PROCESS,
    lost_result,
    merged,
    processes_for,
)
from servetwin.sim.records.run import JOURNAL, load_run
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.loadtest_server import Reply, ScriptedServer, stream_of, text
from tests.support.mock_load import outcome, trace_of
from tests.support.paths import ROOT

pytestmark = pytest.mark.slow


def test_three_processes_send_one_schedule() -> None:
    arrivals_s = [index * 0.05 for index in range(10)]
    states: list[Progress] = []
    with ScriptedServer(lambda body: stream_of(2)).running() as server:
        run = run_load_test(
            probe(server.url),
            trace_of(*arrivals_s),
            options=LoadOptions(processes=3, progress_every_s=0.05),
            on_progress=states.append,
        )
    requests = run.requests
    assert requests["request_id"].tolist() == [f"r{index}" for index in range(10)]
    assert requests["status"].tolist() == ["finished"] * 10
    assert requests["scheduled_s"].tolist() == arrivals_s
    zero_s = run.meta["clock_zero_perf_counter_s"]
    at_server_s = np.sort([arrival.at_s - zero_s for arrival in server.arrivals])
    assert (requests["sent_s"] >= requests["scheduled_s"]).all()
    assert (at_server_s >= np.sort(requests["sent_s"])).all()
    assert (run.meta["client"]["processes"], outcome(run)["processes"]) == (3, 3)
    assert (states[-1].total, states[-1].sent, states[-1].ended) == (10, 10, 10)
    assert ", 3 processes, CPU" in " ".join(render_report(run).split())


def children() -> list[int]:
    """The processes of the load test, in the order of their start."""
    listed = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    pids = [int(pid) for path in listed for pid in path.read_text().split()]
    return sorted(pid for pid in pids if b"servetwin.loadtest.run.worker" in command(pid))


def command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes by /proc")
def test_a_process_that_dies_loses_its_own_requests() -> None:
    killed: list[int] = []

    def kill(state: Progress) -> None:
        if state.ended >= 2 and not killed:
            killed.append(children()[0])
            os.kill(killed[0], signal.SIGKILL)

    with ScriptedServer(lambda body: stream_of(2)).running() as server:
        run = run_load_test(
            probe(server.url),
            trace_of(*(index * 0.1 for index in range(12))),
            options=LoadOptions(processes=2, progress_every_s=0.05),
            on_progress=kill,
        )
    lost = run.requests["error"] == "client_lost"
    assert lost.sum() == 6
    assert len(set(np.flatnonzero(lost) % 2)) == 1
    assert (run.requests.loc[~lost, "status"] == "finished").all()
    assert (run.requests.loc[lost, "status"] == "failed").all()
    assert outcome(run)["lost_processes"] == 1
    assert outcome(run)["failures"] == {"client_lost": 6}
    assert (
        "ended with exit code -9 before it handed in"
        in (outcome(run)["first_messages"]["client_lost"])
    )
    assert "1 of 2 processes of the load test died" in render_report(run)


LOAD = """
import sys
from pathlib import Path
from servetwin.loadtest.run.client import LoadOptions, run_load_test
from servetwin.loadtest.endpoint import probe
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
arrivals_s = (0.0, 0.05, 0.1, 3600.0)
trace = Trace(tuple(Request(f"r{n}", at_s, 7, 3) for n, at_s in enumerate(arrivals_s)), "four")
run = run_load_test(probe(sys.argv[1]), trace, options=LoadOptions(processes=int(sys.argv[2])))
run.save(Path(sys.argv[3]))
"""


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_keeps_what_was_measured(
    processes: int, number: signal.Signals, tmp_path: Path
) -> None:
    """Two are whole, the third is in flight when it comes, the fourth is due in an hour.

    The signal goes to the whole group, as that of a terminal does.
    """
    out = tmp_path / "run"
    replies = iter([stream_of(3), stream_of(3), Reply((text("a"), 600.0))])
    with ScriptedServer(lambda body: next(replies)).running() as server:
        process = subprocess.Popen(
            [sys.executable, "-c", LOAD, server.url, str(processes), str(out)],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        deadline = time.monotonic() + 60
        while len(server.arrivals) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.3)
        os.killpg(process.pid, number)
        _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (0, "")
    run = load_run(out)
    assert run.requests["status"].tolist() == ["finished", "finished", "cancelled", "cancelled"]
    assert run.requests["output_tokens"].tolist() == [3, 3, 1, 0]
    assert outcome(run)["interrupted"] is True
    assert outcome(run)["lost_processes"] == 0


def test_what_keeps_a_process_from_starting_is_said() -> None:
    with ScriptedServer(lambda body: stream_of(2)).running() as server:
        options = LoadOptions(processes=2, proxy="nonsense")
        with pytest.raises(LoadTestError, match="the proxy cannot be used"):
            run_load_test(probe(server.url), trace_of(0.0, 0.1), options=options)
    assert server.arrivals == []


def test_a_dead_endpoint_ends_all_processes() -> None:
    """Each of two processes waits as long for a connection as one would."""
    with ScriptedServer(lambda body: stream_of(2)).running() as server:
        endpoint = probe(server.url)
    run = run_load_test(
        endpoint,
        trace_of(*(index * 0.05 for index in range(40))),
        options=LoadOptions(processes=2, give_up_after_s=0.35),
    )
    assert outcome(run)["stopped"] == "the endpoint was gone (no connection for 0.35 s)"
    refused = run.requests[run.requests["error"] == "connect"]
    for _, sent_s in refused["sent_s"].groupby(refused["request_id"].str[1:].astype(int) % 2):
        assert 0.35 <= sent_s.max() - sent_s.min() < 0.35 + 1.0
    assert sum(outcome(run)["failures"].values()) == 40


def test_rows_come_back_in_the_order_of_the_schedule() -> None:
    rows = [{"index": index, "scheduled_s": index // 3} for index in range(7)]
    assert merged([rows[start::3] for start in range(3)]) == rows


def steady(per_s: float, seconds: int, tokens: int) -> Trace:
    count = round(per_s * seconds)
    return trace_of(*(index / per_s for index in range(count)), output_tokens=tokens)


@pytest.mark.parametrize(
    ("trace", "tokens_per_s"),
    [
        (trace_of(), 0.0),
        (trace_of(0.0, output_tokens=50), 5.0),
        (steady(10.0, 60, 30), 300.0),
        (trace_of(0.0, 100.0, 101.0, 200.0, output_tokens=40), 8.0),
    ],
)
def test_the_peak_is_that_of_ten_seconds(trace: Trace, tokens_per_s: float) -> None:
    assert expected_peak_tokens_per_s(trace, LoadOptions()) == pytest.approx(tokens_per_s)


def test_as_many_processes_as_the_peak_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    options = LoadOptions()
    full = TOKENS_PER_S_A_PROCESS // 10
    assert processes_for(steady(10.0, 60, full), options) == 1
    assert processes_for(steady(10.0, 60, full + 1), options) == 2
    assert processes_for(steady(10.0, 60, 30 * full), options) == 4
    assert processes_for(steady(10.0, 60, 1), LoadOptions(processes=3)) == 3
    assert processes_for(trace_of(0.0), LoadOptions(processes=3)) == 1
    with pytest.raises(LoadTestError, match="processes 0: at least one must send the load"):
        LoadOptions(processes=0)


def test_users_are_shared_out_by_how_much_they_can_read() -> None:
    made = with_users(Trace(tuple(Request(f"r{n}", 0, 5, 900) for n in range(50)), "t"), 5)
    options = LoadOptions(concurrency=5)
    assert expected_peak_tokens_per_s(made, options) == 500
    assert processes_for(made, options) == 1
    assert processes_for(made, LoadOptions(concurrency=5, processes=9)) == 5


def test_what_its_journal_has_is_kept_and_the_rest_is_lost(tmp_path: Path) -> None:
    trace = trace_of(0.0, 0.02, 0.04, 0.06)
    replies = iter([stream_of(2), Reply(status=500), stream_of(3), stream_of(4)])
    with (
        ScriptedServer(lambda body: next(replies)).running() as server,
        Journal(tmp_path, {}) as journal,
    ):
        run = run_load_test(
            probe(server.url), trace, options=LoadOptions(processes=1), journal=journal
        )
    lines = (tmp_path / JOURNAL).read_bytes().splitlines(keepends=True)[2:]
    told = b"".join(line for line in lines if b'"r3"' not in line)
    found = lost_result(trace, told, "process 2 ended")
    rows = {row["request_id"]: row for row in found.rows}
    assert found.lost
    assert {name: row["status"] for name, row in rows.items()} == {
        "r0": "finished", "r1": "failed", "r2": "finished", "r3": "failed"
    }  # fmt: skip
    assert rows["r3"]["error"] == "client_lost"
    assert rows["r2"]["output_tokens"] == 3
    np.testing.assert_array_equal(rows["r2"]["chunk_s"], run.requests["chunk_s"][2])
    messages = run.extra["delivered"]["first_messages"]
    assert found.first_messages["http_5xx"] == messages["http_5xx"]
    assert found.first_messages["client_lost"] == (
        "process 2 ended before it handed in its records: what became of 1 of its 4 requests is "
        "not known"
    )


def test_all_are_lost_where_nothing_was_told() -> None:
    rows = lost_result(trace_of(0.0, 0.5), b"", "process 1 ended").rows
    assert [(row["scheduled_s"], row["error"]) for row in rows] == [
        (0.0, "client_lost"),
        (0.5, "client_lost"),
    ]


def test_a_worker_loads_nothing_heavy() -> None:
    heavy = ["pandas", "simpy", "scipy", "servetwin.sim", "torch"]
    loaded = f"print([m for m in {heavy} if m in sys.modules])"
    code = f"import sys, servetwin.loadtest.run.worker; {loaded}"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
