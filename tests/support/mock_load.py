"""Load tests of a mock, and the loads that they send."""

from typing import Any

import pandas as pd

from loadtest.run.client import LoadOptions, run_load_test
from sim.records.run import Run
from tests.support.mock_endpoint import completions, mocked, plan
from workloads.request import Request
from workloads.trace import Trace


def load(trace: Trace, *faults: str, mock: dict[str, Any] | None = None, **options: Any) -> Run:
    """One load test of a mock: the first token after 50 ms, then one each 10 ms, unless told."""
    with mocked(plan(*faults, **{"ttft_ms": 50, "itl_ms": 10, **(mock or {})})) as (server,):
        return run_load_test(completions(server), trace, options=LoadOptions(**options))


def outcome(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = run.extra["delivered"]
    return found


def in_order(run: Run, column: str = "sent_s") -> list[str]:
    names: list[str] = (
        run.requests.dropna(subset=[column]).sort_values(column)["request_id"].tolist()
    )
    return names


def ends_s(run: Run) -> pd.Series:
    return run.requests.set_index("request_id")["last_token_s"]


def chats(*lengths: int, delay_s: float = 0.05) -> Trace:
    """Conversations that start 20 ms apart, their follow-ups stamped an hour late."""
    requests = [
        Request(
            f"c{chat}.{turn}",
            0.02 * chat + 3600 * turn,
            5,
            3,
            parent_id=f"c{chat}.{turn - 1}" if turn else None,
            delay_s=delay_s if turn else None,
            session_id=f"c{chat}",
        )
        for chat, turns in enumerate(lengths)
        for turn in range(turns)
    ]
    requests.sort(key=lambda request: request.arrival_s)
    return Trace(tuple(requests), "chats.jsonl")
