"""The records of a worker that died: what it had reported of its requests, and which are lost."""

import json

from servetwin.loadtest.http.exchange import Exchange, Failure
from servetwin.loadtest.plan.schedule import ScheduledRequest
from servetwin.loadtest.report.rows import request_rows
from servetwin.loadtest.run.journal_lines import read_lines
from servetwin.loadtest.run.worker_client import WorkerResult
from servetwin.workloads.trace import Trace


def lost_result(trace: Trace, journal: bytes, death: str) -> WorkerResult:
    """Return the result of a worker that handed in none.

    ``journal`` has the lines that came from it before: these requests have ended. The others of its
    ``trace`` are ``client_lost``; ``death`` says which worker it was, and how it ended.
    """
    rows, first_messages = read_lines(map(json.loads, journal.splitlines()))
    ended = {row["request_id"] for row in rows}
    lost = [request for request in trace if request.request_id not in ended]
    reason = (
        f"{death} before it handed in its records: what became of {len(lost)} of its {len(trace)} "
        "requests is not known"
    )
    failure = Failure("client_lost", reason)
    sends = [ScheduledRequest(request.arrival_s, request, b"") for request in lost]
    lost_rows, messages = request_rows(sends, [Exchange(failure=failure)] * len(lost), 0, "")
    return WorkerResult([*rows, *lost_rows], {**messages, **first_messages}, lost=True)
