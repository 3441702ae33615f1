"""Small runs for the tests of figures and reports, made of stamps."""

from typing import Any

import numpy as np
import pandas as pd

from servetwin.sim.records.metrics import REQUEST_COLUMNS, derive
from servetwin.sim.records.run import Run


def requests_frame(count: int = 30, seed: int = 0, **columns: Any) -> pd.DataFrame:
    """Finished requests, two per second; more columns, or other values, by name."""
    rng = np.random.default_rng(seed)
    scheduled_s = np.arange(count) / 2
    first_s = scheduled_s + rng.lognormal(-2, 1, count)
    tokens = rng.integers(2, 60, count)
    stamps = {
        "request_id": [f"r{i}" for i in range(count)],
        "status": "finished",
        "scheduled_s": scheduled_s,
        "sent_s": scheduled_s,
        "first_token_s": first_s,
        "last_token_s": first_s + 0.02 * (tokens - 1),
        "prompt_tokens": rng.integers(1, 500, count),
        "output_tokens": tokens,
        "cached_tokens": 0,
        "preemptions": 0,
        "queue_s": (first_s - scheduled_s) / 2,
        "replica": 0,
        "error": None,
    }
    return derive(pd.DataFrame({**stamps, **columns}))[[*REQUEST_COLUMNS, *_extra(columns)]]


def load_test(count: int = 30, lag_s: float = 0.001, **columns: Any) -> Run:
    """What a load test keeps of such requests, each sent ``lag_s`` late."""
    frame = requests_frame(count, queue_s=np.nan, **columns)
    frame["sent_s"] = frame["scheduled_s"] + lag_s
    frame["ttft_sent_s"] = frame["first_token_s"] - frame["sent_s"]
    frame["first_chunk_tokens"] = 1
    stamps = zip(frame["first_token_s"], frame["last_token_s"], frame["output_tokens"], strict=True)
    chunk_s = [np.linspace(first, last, tokens) for first, last, tokens in stamps]
    frame["chunk_s"] = pd.Series(chunk_s, index=frame.index, dtype=object)
    endpoint = {"base_url": "http://127.0.0.1:1/v1", "model": "base"}
    scenario = {"endpoint": endpoint, "trace": "made", "notes": ["a note"]}
    meta = {"clock_zero_perf_counter_s": 5.0}
    delivered = {"verdict": "client ok", "lag_p99_s": lag_s, "client_cpu_share": 0.1}
    return Run("loadtest", frame, pd.DataFrame(), scenario, meta, {"delivered": delivered})


def steps_frame(count: int = 50, replica: int = 0) -> pd.DataFrame:
    """Steps of half a second, half a second apart, with 1 to ``count`` requests running."""
    number = np.arange(count)
    return pd.DataFrame(
        {
            "start_s": number * 1.0,
            "end_s": number + 0.5,
            "running": number + 1,
            "waiting": number % 3,
            "free_kv_tokens": 1000 - 10 * number,
            "replica": replica,
        }
    )


def _extra(columns: dict[str, Any]) -> list[str]:
    return [name for name in columns if name not in REQUEST_COLUMNS]
