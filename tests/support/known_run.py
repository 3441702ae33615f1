"""A run of a load test with figures that are known."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from servetwin.sim.records.metrics import derive
from servetwin.sim.records.run import Run


def run_of(count: int, statuses: Sequence[str] = (), **delivered: Any) -> Run:
    """Requests one second apart: TTFT 200 ms (100 ms of it lag), five tokens 50 ms apart."""
    scheduled = np.arange(count, dtype=float)
    chunks = [at_s + 0.2 + 0.05 * np.arange(5) for at_s in scheduled]
    stamps = pd.DataFrame(
        {
            "request_id": [f"r{index}" for index in range(count)],
            "status": list(statuses) or "finished",
            "scheduled_s": scheduled,
            "first_token_s": scheduled + 0.2,
            "last_token_s": scheduled + 0.4,
            "prompt_tokens": 10,
            "output_tokens": 5,
            "cached_tokens": 0,
            "preemptions": 0,
            "ttft_sent_s": 0.1,
            "asked_output_tokens": 5,
            "chunk_s": chunks,
        }
    )
    outcome = {
        "offered_per_s": 1.0,
        "sent_per_s": 0.998,
        "lag_p50_s": 0.0005,
        "lag_p99_s": 0.00125,
        "loop_oversleep_p99_s": 0.002,
        "client_cpu_share": 0.41,
        "verdict": "client ok",
        "failures": {},
        "first_messages": {},
        **delivered,
    }
    scenario = {
        "endpoint": {
            "model": "base",
            "base_url": "http://h/v1",
            "api": "completions",
            "prompt": "ids",
            "force_length": True,
        },
        "trace": "sample.jsonl",
        "requests": count,
        "rate_per_s": 1.0,
        "notes": ["rate scaled"],
    }
    return Run("loadtest", derive(stamps), pd.DataFrame(), scenario, {}, {"delivered": outcome})


def hundred(failed: int = 0) -> Run:
    """100 requests: TTFT 200 ms, TPOT and gaps 50 ms, E2E 400 ms, 5 tokens each."""
    found = run_of(100, ["failed"] * failed + ["finished"] * (100 - failed))
    found.requests["error"] = None
    return found
