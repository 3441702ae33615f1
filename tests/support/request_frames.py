"""Requests of a run whose figures can be worked out by hand."""

import numpy as np
import pandas as pd

from servetwin.sim.records.metrics import derive


def four_requests() -> pd.DataFrame:
    """Three finished requests, of 5, 1 and 80 tokens, and a refused one."""
    return derive(four_stamps())


def four_stamps() -> pd.DataFrame:
    """``four_requests`` without the derived latencies."""
    return pd.DataFrame(
        {
            "request_id": ["a", "b", "c", "d"],
            "status": ["finished", "finished", "finished", "refused"],
            "scheduled_s": [1.0, 2.0, 3.0, 4.0],
            "sent_s": [1.0, 2.0, 3.0, 4.0],
            "first_token_s": [1.5, 2.2, 3.1, np.nan],
            "last_token_s": [3.5, 2.2, 11.0, np.nan],
            "prompt_tokens": [10, 20, 30, 40],
            "output_tokens": [5, 1, 80, 0],
            "cached_tokens": [0, 16, 0, 0],
            "preemptions": [0, 0, 2, 0],
            "queue_s": [0.1, 0.0, 0.0, np.nan],
            "replica": 0,
            "error": ["", "", "", "queue_full"],
        }
    )
