"""Sessions of a trace: how many turns, how far apart, and how much each turn adds."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workloads.request import Request

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SessionSamples:
    """One value per session (``turns``), or per turn that follows another (the others)."""

    turns: FloatArray
    gaps_s: FloatArray
    fresh_tokens: FloatArray


def session_samples(requests: Iterable[Request]) -> SessionSamples:
    """Return the turns of each ``session_id``, and gap and fresh tokens of each request with a
    parent.

    A gap is the time between the arrivals of both. Fresh tokens are what the prompt adds to the
    parent's prompt and output; 0 where it is shorter, as after a compaction.
    """
    by_id: dict[str, Request] = {}
    turns: Counter[str] = Counter()
    gaps_s, fresh_tokens = [], []
    for request in requests:
        by_id[request.request_id] = request
        if request.session_id is not None:
            turns[request.session_id] += 1
        if (parent := by_id.get(request.parent_id or "")) is not None:
            gaps_s.append(request.arrival_s - parent.arrival_s)
            fresh_tokens.append(max(0, request.prompt_tokens - parent.total_tokens))
    return SessionSamples(
        np.array(list(turns.values()), np.float64),
        np.array(gaps_s, np.float64),
        np.array(fresh_tokens, np.float64),
    )
