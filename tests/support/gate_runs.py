"""Load tests whose figures are known: a server of 100 ms TTFT and 20 ms TPOT, with noise."""

from typing import Any

import numpy as np
import pandas as pd

from servetwin.sim.records.metrics import derive
from servetwin.sim.records.run import Run, RunKind

TOKENS = 11


def noisy_run(
    slower: float = 1.0,
    seed: int = 0,
    count: int = 200,
    noise: float = 0.02,
    failed: int = 0,
    kind: RunKind = "loadtest",
    per_s: float = 10.0,
    **extra: Any,
) -> Run:
    """Every ``count / failed``-th request fails; ``extra`` joins what was delivered."""
    rng = np.random.default_rng(seed)
    scheduled = np.arange(count) / per_s
    factor = slower * np.exp(noise * rng.standard_normal((count, 2)))
    first = scheduled + 0.100 * factor[:, 0]
    fails = np.arange(count) < failed
    stamps = pd.DataFrame(
        {
            "request_id": [f"r{n}" for n in range(count)],
            "status": np.where(fails, "failed", "finished"),
            "error": ["http_5xx" if fail else None for fail in fails],
            "scheduled_s": scheduled,
            "sent_s": scheduled,
            "first_token_s": np.where(fails, np.nan, first),
            "last_token_s": np.where(fails, np.nan, first + 0.020 * (TOKENS - 1) * factor[:, 1]),
            "prompt_tokens": 10,
            "output_tokens": TOKENS,
            "cached_tokens": 0,
            "preemptions": 0,
            "queue_s": np.nan,
            "replica": 0,
        }
    )
    scenario = {
        "endpoint": {"model": "mock", "api": "completions", "prompt": "ids", "force_length": True},
        "rate_per_s": per_s,
        "closed_loop": False,
        "options": {"retries": 0},
    }
    delivered = {"interrupted": False, "stopped": None, "limited_by": [], **extra}
    return Run(kind, derive(stamps), pd.DataFrame(), scenario, {}, {"delivered": delivered})


def named(side: str, *runs: Run) -> dict[str, Run]:
    return {f"{side}/{place}": run for place, run in enumerate(runs, 1)}
