"""Tables of a timeline: the parts of a request, the steps before it, the slowest of a run."""

from collections.abc import Sequence

import pandas as pd

from app.figures import PART_LOOKS
from app.text.explanation import verdict
from sim.explain.explain import Explanation

_STEPS = {
    "start_s": "start, s",
    "steps": "steps",
    "decode_sequences": "decodes",
    "prefill_chunks": "prefill chunks",
    "rows": "rows",
    "running": "running",
    "waiting": "waiting",
    "free_kv_tokens": "free KV, tokens",
}


def parts_table(found: Explanation) -> pd.DataFrame:
    """Every part in milliseconds and as a share of the latency."""
    whole_s = sum(found.parts_s.values()) or 1.0
    rows = [
        {"part": PART_LOOKS[part][0], "ms": 1e3 * s, "share, %": 100 * s / whole_s}
        for part, s in found.parts_s.items()
    ]
    return pd.DataFrame(rows)


def behind_table(steps: pd.DataFrame) -> pd.DataFrame:
    """Rows of ``Run.steps`` with the columns that tell why a request waited."""
    lasted_ms = 1e3 * (steps["end_s"] - steps["start_s"])
    table = steps[list(_STEPS)].rename(columns=_STEPS)
    table.insert(1, "lasted, ms", lasted_ms)
    return table


def slowest_table(found: Sequence[Explanation]) -> pd.DataFrame:
    """A row per request: its latencies, and what held it up."""
    rows = [
        {
            "request": one.request_id,
            "E2E latency, ms": _ms(one.e2e_s),
            "TTFT, ms": _ms(one.ttft_s),
            "TPOT, ms": _ms(one.tpot_s),
            "what held it up": verdict(one),
        }
        for one in found
    ]
    return pd.DataFrame(rows)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1e3 * seconds, 1)
