"""Why a request waited before its prefill, from the steps that ran during the wait.

Every row of steps has one cause, the first of these that applies:

====================  ==========================================================================
the batch ran         static batching: a running batch admits no request
all places taken      as many run as the policy allows
a step was running    no request waited when it was decided: the request arrived during it
prompts filled it     it computed prompts and the memory had room for this one
the memory was full   what remains: a place was free, and no waiting request got it
====================  ==========================================================================

Without a row, a static batch was filling. The cause of the whole wait is the one with the largest
share of it.
"""

from collections.abc import Mapping
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

QueueCause = Literal["batch", "places", "step", "prompts", "memory", "filling"]


def queue_cause(
    rows: pd.DataFrame,
    arrived_s: float,
    admitted_s: float,
    prompt_tokens: int,
    policies: Mapping[str, Any],
) -> QueueCause | None:
    """Return the cause of most of the time between two stamps; None if there is no time.

    ``rows`` are the steps of the replica that overlap the wait.
    """
    if admitted_s <= arrived_s:
        return None
    waited_s = rows["end_s"].clip(upper=admitted_s) - rows["start_s"].clip(lower=arrived_s)
    share_s = waited_s.groupby(causes(rows, prompt_tokens, policies)).sum()
    share_s.loc["filling"] = admitted_s - arrived_s - share_s.sum()
    return cast(QueueCause, share_s.idxmax())


def causes(
    rows: pd.DataFrame, prompt_tokens: float, policies: Mapping[str, Any]
) -> npt.NDArray[np.str_]:
    """Return the cause in each row of steps, for a request with a prompt of that length."""
    static = policies.get("batching") == "static"
    prompts = (rows["prefill_chunks"] > 0) & (rows["free_kv_tokens"] >= prompt_tokens)
    applies = {
        "batch": np.full(len(rows), static),
        "places": rows["running"] >= policies.get("max_seqs", np.inf),
        "step": rows["waiting"] == 0,
        "prompts": prompts,
    }
    return np.select(list(applies.values()), list(applies), "memory")
