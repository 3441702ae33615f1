"""How far the prompts that were asked are from the lengths that the server counted."""

import numpy as np
import pandas as pd

from workloads.trace import Trace


def prompt_lengths_note(requests: pd.DataFrame, trace: Trace) -> str | None:
    """One line where the server's counts are others; None where they agree or none was told.

    Prompts of text have one common word per token asked, and what a tokenizer makes of them is
    only known from the usage. Servers also add tokens of their own: a first one, a chat template.
    """
    finished = requests[requests["status"] == "finished"]
    asked_of = {request.request_id: request.prompt_tokens for request in trace}
    finished = finished[finished["request_id"].isin(asked_of)]  # users may have sent more
    asked = finished["request_id"].map(asked_of).to_numpy(dtype=float)
    counted = finished["prompt_tokens"].to_numpy(dtype=float)
    if not len(finished) or (asked == counted).all():
        return None
    off = 100 * (counted / asked - 1)
    low, high = np.percentile(off, [5, 95])
    return (
        f"the server counts {counted.sum():,.0f} prompt tokens where the trace has "
        f"{asked.sum():,.0f} ({100 * (counted.sum() / asked.sum() - 1):+.1f} %; "
        f"p5 to p95 of the requests {low:+.1f} % to {high:+.1f} %)"
    )
