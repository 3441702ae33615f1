"""Why a request waited, judged from the steps that ran meanwhile."""

from typing import Any

import pandas as pd
import pytest

from servetwin.sim.explain.bottleneck import queue_cause
from tests.support.explained_runs import STEPS

CAUSES = [
    ({"running": 16}, {}, "places"),
    ({"running": 16}, {"batching": "static"}, "batch"),
    ({"waiting": 0}, {}, "step"),
    ({"prefill_chunks": 2}, {}, "prompts"),
    ({"prefill_chunks": 2, "free_kv_tokens": 9}, {}, "memory"),
    ({}, {}, "memory"),
    ({"start_s": 0.0, "end_s": 1.2}, {"batching": "static"}, "filling"),
]


@pytest.mark.parametrize(("row", "policies", "cause"), CAUSES)
def test_the_cause_of_a_wait_is_what_held_for_most_of_it(
    row: dict[str, Any], policies: dict[str, Any], cause: str
) -> None:
    common = STEPS | {"start_s": 1.0, "end_s": 3.0, "running": 3, "waiting": 2}
    brief = common | {"start_s": 3.0, "end_s": 9.0, "waiting": 0}
    rows = pd.DataFrame([common | row, brief])
    config = {"max_seqs": 16, "batching": "continuous", **policies}
    if policies:
        rows = rows[:1]
    assert queue_cause(rows, 1.0, 3.5, 50, config) == cause
    assert queue_cause(rows, 3.5, 3.5, 50, config) is None


# --- which request
