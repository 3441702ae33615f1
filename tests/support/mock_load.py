"""Load tests of a mock, and the loads that they send."""

from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from servetwin.loadtest.run.client import LoadOptions, run_load_test
from servetwin.sim.records.run import Run
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.mock_endpoint import completions, mocked, plan


def load(trace: Trace, *faults: str, mock: dict[str, Any] | None = None, **options: Any) -> Run:
    """One load test of a mock: the first token after 50 ms, then one each 10 ms, by default."""
    with mocked(plan(*faults, **{"ttft_ms": 50, "itl_ms": 10, **(mock or {})})) as (server,):
        return run_load_test(completions(server), trace, options=LoadOptions(**options))


def outcome(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = run.extra["delivered"]
    return found


def refused_for_s(requests: pd.DataFrame) -> float:
    """How long a load test went on from its first refused connection to the last."""
    sent_s = requests["sent_s"][requests["error"] == "connect"]
    return float(sent_s.max() - sent_s.min())


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
            parent_ids=(f"c{chat}.{turn - 1}",) if turn else (),
            delay_s=delay_s if turn else None,
            session_id=f"c{chat}",
        )
        for chat, turns in enumerate(lengths)
        for turn in range(turns)
    ]
    requests.sort(key=lambda request: request.arrival_s)
    return Trace(tuple(requests), "chats.jsonl")


def trace_of(*arrivals_s: float, output_tokens: int = 3) -> Trace:
    requests = (
        Request(f"r{index}", at_s, prompt_tokens=7, output_tokens=output_tokens)
        for index, at_s in enumerate(arrivals_s)
    )
    return Trace(tuple(requests), "made.jsonl")


GAPS_MS = st.lists(st.integers(0, 5_000), min_size=1, max_size=12).filter(any)
"""The gaps of a ``paired_trace``."""


def paired_trace(gaps_ms: list[int]) -> Trace:
    """Pairs of requests share a prefix block; the second of a pair follows the first."""
    arrivals_s = np.cumsum([0, *gaps_ms]) / 1000
    requests = [
        Request(
            f"r{n}",
            at_s,
            20 + n,
            3,
            prefix_block_ids=(n // 2,),
            block_tokens=16,
            session_id=f"s{n // 2}",
            parent_ids=(f"r{n - 1}",) if n % 2 else (),
            delay_s=0.25 if n % 2 else None,
        )
        for n, at_s in enumerate(arrivals_s.tolist())
    ]
    return Trace(tuple(requests), "pairs.jsonl")
