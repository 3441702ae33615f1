"""Of a worker that died, what had ended is kept and the rest is lost."""

from pathlib import Path

import numpy as np

from servetwin.loadtest.endpoint import probe
from servetwin.loadtest.run.client import LoadOptions, run_load_test
from servetwin.loadtest.run.journal import Journal
from servetwin.loadtest.run.lost_worker import lost_result
from servetwin.sim.records.run_folder import JOURNAL
from tests.support.loadtest_server import Reply, ScriptedServer, stream_of
from tests.support.mock_load import trace_of


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
