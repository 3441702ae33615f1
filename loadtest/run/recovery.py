"""Make a run of the journal that a killed load test left behind."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from servetwin.loadtest.report.records import requests_frame
from servetwin.loadtest.run.client import delivery
from servetwin.loadtest.run.journal_lines import read_lines
from servetwin.loadtest.run.worker_client import WorkerResult
from servetwin.loadtest.run.worker_pool import merged
from servetwin.sim.records.run import JOURNAL, Run, RunError


def recovered_run(folder: Path) -> Run:
    """Return the run of the requests that had ended when the load test was killed.

    What became of the others is not known: they are in no row, and a note says how many they are.
    Raises ``RunError`` where the journal cannot be read or no request had ended.
    """
    path = folder / JOURNAL
    try:
        header, *lines = _decoded(path)
        scenario, meta = header["scenario"], header["meta"]
        rows, first_messages = read_lines(lines[1:])  # after the zero of the clock
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path}: no readable journal; nothing can be recovered") from error
    if not rows:
        raise RunError(
            f"{folder}: the load test was killed before any request had ended; there is nothing "
            "to recover"
        )
    total = "" if scenario["options"]["endless"] else f" of {scenario['requests']}"
    stopped = f"killed after {len(rows)}{total} requests had ended"
    requests = requests_frame(merged([rows]), warm_up_s=scenario["options"]["warm_up_s"])
    result = WorkerResult(rows, first_messages, interrupted=True, stopped=stopped)
    figures = delivery(requests, [result], forced=scenario["endpoint"]["force_length"])
    delivered = {**figures, "verdict": "client unknown", "limited_by": []}
    notes = [*scenario["notes"], f"the load test was {stopped}"]
    scenario |= {"requests": len(rows), "notes": notes}
    meta |= lines[0]  # the zero of the clock
    return Run("loadtest", requests, pd.DataFrame(), scenario, meta, {"delivered": delivered})


def _decoded(path: Path) -> Iterator[Any]:
    """Yield what all whole lines hold; the last one may be half written."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)
