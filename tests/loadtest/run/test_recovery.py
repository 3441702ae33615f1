"""What a journal gives back: every request that had ended, as the run itself has it."""

import json
import os
import signal
import time
from itertools import count
from math import inf
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from servetwin.app.cli import app
from servetwin.loadtest.endpoint import probe
from servetwin.loadtest.run.client import LoadOptions, run_load_test
from servetwin.loadtest.run.journal import Journal
from servetwin.loadtest.run.recovery import recovered_run
from servetwin.sim.records.run import JOURNAL, Run, RunError, load_run
from servetwin.workloads.readers.native import write_trace
from tests.support.loadtest_server import (
    DONE,
    Reply,
    ScriptedServer,
    delta,
    event,
    stream_of,
    text,
    usage,
)
from tests.support.mock_endpoint import evenly
from tests.support.mock_load import trace_of
from tests.support.mock_process import mock_process, servetwin_process

THREE = (text("a"), text("b"), text("c", "length"))
REPLIES = [
    stream_of(3),
    stream_of(1),
    Reply((*THREE, usage(3, 48, 32), DONE)),
    Reply((text(""), *THREE, DONE)),
    Reply((event(choices=[{"text": "ab", "token_ids": [1, 2]}]), *THREE, DONE)),
    Reply((delta(reasoning_content="hm"), delta(content="a"), delta("stop"), DONE)),
    Reply((b"boom",), 500),
    Reply((b'{"error": {"message": "queue full"}}',), 429),
    Reply(THREE[:2], ending="cut"),
    Reply(),
]


def journaled(folder: Path, **options: Any) -> Run:
    """A load test of every kind of answer, whose run is not saved."""
    turns = count()
    with ScriptedServer(lambda body: REPLIES[next(turns) % len(REPLIES)]).running() as server:
        trace = trace_of(*(0.02 * n for n in range(20)))
        with Journal(folder, {"seed": 7}) as journal:
            return run_load_test(
                probe(server.url), trace, options=LoadOptions(**options), journal=journal
            )


def by_id(requests: pd.DataFrame) -> pd.DataFrame:
    return requests.sort_values("request_id", ignore_index=True)


@pytest.mark.parametrize("processes", [1, 2])
def test_the_rows_are_those_of_the_run(tmp_path: Path, processes: int) -> None:
    run = journaled(tmp_path, processes=processes, warm_up_s=0.1, progress_every_s=0.1)
    found = recovered_run(tmp_path)
    pd.testing.assert_frame_equal(by_id(found.requests), by_id(run.requests), check_dtype=False)
    ours, theirs = found.extra["delivered"], run.extra["delivered"]
    assert ours["failures"] == theirs["failures"]
    assert ours["first_messages"].keys() == theirs["first_messages"].keys()
    assert ours["stopped"] == "killed after 20 of 20 requests had ended"
    assert ours["interrupted"] is True
    assert found.scenario["seed"] == 7
    same = {"notes": [], "seed": 7, "requests": 20}
    assert {**found.scenario, **same} == {**run.scenario, **same}
    for name in ("prompt_salt", "clock_zero_perf_counter_s", "clock_zero_unix_s"):
        assert found.meta[name] == run.meta[name]


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_half_a_last_line_costs_that_line(tmp_path: Path, cut: int) -> None:
    journaled(tmp_path)
    journal = tmp_path / JOURNAL
    rest = journal.read_bytes()[:-cut]
    journal.write_bytes(rest)
    assert len(recovered_run(tmp_path).requests) == rest.count(b"\n") - 2 >= 18


def test_a_run_that_is_saved_takes_the_journal_away(tmp_path: Path) -> None:
    run = journaled(tmp_path)
    with pytest.raises(RunError, match=r"servetwin report .* recovers the requests"):
        load_run(tmp_path)
    run.save(tmp_path)
    assert not (tmp_path / JOURNAL).exists()
    assert len(load_run(tmp_path).requests) == 20


@pytest.mark.parametrize("lines", [1, 2])
def test_a_load_test_that_was_killed_early_has_nothing(tmp_path: Path, lines: int) -> None:
    journaled(tmp_path)
    journal = tmp_path / JOURNAL
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:lines]))
    with pytest.raises(RunError) as error:
        recovered_run(tmp_path)
    assert str(error.value) == (
        f"{tmp_path}: the load test was killed before any request had ended; there is nothing to "
        "recover"
    )


@pytest.mark.parametrize(
    "data", [b"", b"{}\n", b"[]\n", b"\xff\xfe\n", b"nonsense\n", b'{"scenario": {}', b"[[[\n"]
)
def test_what_is_no_journal_is_said(tmp_path: Path, data: bytes) -> None:
    (tmp_path / JOURNAL).write_bytes(data)
    with pytest.raises(RunError, match="no readable journal"):
        recovered_run(tmp_path)


def first_ended_ns(truth: Path) -> float:
    """When the first request had ended; never, where none has."""
    first, end, _ = truth.read_text().partition("\n") if truth.exists() else ("", "", "")
    return float(json.loads(first)["ended_ns"]) if end else inf


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_kill_9_loses_no_request_that_ended_a_second_before(tmp_path: Path, processes: int) -> None:
    trace, folder, page = tmp_path / "t.jsonl", tmp_path / "run", tmp_path / "page.html"
    write_trace(evenly(1000, 50, 4), trace)
    truth = tmp_path / "truth.jsonl"
    with mock_process("--ttft-ms", 5, "--itl-ms", 2, "--truth", truth) as (mock, url):
        asked = ["--trace", trace, "--out", folder, "--processes", processes]
        process = servetwin_process("loadtest", url, *asked)
        while first_ended_ns(truth) > time.perf_counter_ns() - 2e9:
            assert process.poll() is None
            time.sleep(0.05)
        killed_ns = time.perf_counter_ns()
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=30)
        mock.terminate()  # A mock that is killed would not write its last truths.
        mock.wait(30)
    ended = [json.loads(line) for line in truth.read_text().splitlines()]
    before = [one for one in ended if one["ended_ns"] < killed_ns - 1.5e9]
    result = CliRunner().invoke(app, ["report", str(folder), "--out", str(page)])
    assert result.exit_code == 0, result.output
    run = load_run(folder)
    finished = run.requests[run.requests["status"] == "finished"]
    assert len(finished) == len(run.requests)
    assert 0 < len(before) <= len(finished) <= len(ended)
    said = f"the load test was killed after {len(finished)} of 1000 requests had ended"
    assert result.stderr.splitlines()[0] == f"{folder}: {said}"
    assert run.scenario["notes"][-1] == said
    assert f"CUT OFF: killed after {len(finished)} of 1000 requests had ended" in page.read_text()
    again = CliRunner().invoke(app, ["report", str(folder), "--out", str(page)])
    assert said not in again.stderr


@pytest.mark.slow
def test_a_running_load_test_is_left_alone(tmp_path: Path) -> None:
    trace, folder = tmp_path / "t.jsonl", tmp_path / "run"
    write_trace(evenly(400, 50, 4), trace)
    with mock_process("--ttft-ms", 5, "--itl-ms", 2) as (_, url):
        process = servetwin_process("loadtest", url, "--trace", trace, "--out", folder)
        while not (folder / JOURNAL).exists() or (folder / JOURNAL).read_bytes().count(b"\n") < 3:
            assert process.poll() is None
            time.sleep(0.05)
        result = CliRunner().invoke(app, ["report", str(folder)])
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert str(result.exception) == f"{folder}: a load test is running there; wait for its end"
    assert load_run(folder).extra["delivered"]["interrupted"] is True
    assert not (folder / JOURNAL).exists()
