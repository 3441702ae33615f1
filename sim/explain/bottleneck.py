"""What presses on a server: whether the queue grows, what those who wait are waiting for, and how
full batch, memory and time are.

A queue that grows through the run says that more came than was served: its growth is the mean
number waiting in the last quarter of the arrivals less that in the second, over half their span.
Of what was waited in all (requests times seconds), each row of steps has its cause
(``sim.explain.queue_cause``).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import pandas as pd

from sim.explain.queue_cause import QueueCause, causes
from sim.records.run import Run

GROWING_SHARE = 0.05
"""Growth above this share of the arrivals is not the waxing and waning of a steady queue."""
_LEAST_RISE = 10.0
"""Requests more in line at the end than before the middle: fewer may be one burst."""


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """``waited_s`` is the mean wait of a request, ``cause`` had ``cause_share`` of all waiting.

    ``busy_share`` is of the time from first arrival to last token, ``running_peak`` and
    ``kv_peak_share`` are those of the fullest replica; ``kv_peak_share`` is None where the memory
    is not bounded.
    """

    arrivals_per_s: float
    growth_per_s: float
    waited_s: float
    cause: QueueCause | None
    cause_share: float
    busy_share: float
    running_peak: int
    kv_peak_share: float | None

    @property
    def overloaded(self) -> bool:
        """Whether the queue grows all the while."""
        return self.growth_per_s > 0

    @property
    def served_per_s(self) -> float:
        """Arrivals that do not lengthen the queue."""
        return self.arrivals_per_s - self.growth_per_s


def find_bottleneck(run: Run, policies: Mapping[str, Any], kv_tokens: int | None) -> Bottleneck:
    """Of a simulated run; ``kv_tokens`` is the KV memory of each replica, None: without bound."""
    requests, steps = run.requests, run.steps
    first_s, last_s = float(requests["scheduled_s"].min()), float(requests["scheduled_s"].max())
    span_s = max(last_s - first_s, 1e-9)
    waited = _waited_request_s(steps, float(requests["prompt_tokens"].mean()), policies)
    total = float(waited.sum())
    ended_s = max(last_s, float(steps["end_s"].max()) if len(steps) else last_s)
    replicas = max(1, steps["replica"].nunique())
    busy_s = float((steps["end_s"] - steps["start_s"]).sum())
    return Bottleneck(
        arrivals_per_s=(len(requests) - 1) / span_s,
        growth_per_s=_growth_per_s(steps, first_s, span_s, len(requests)),
        waited_s=total / max(1, len(requests)),
        cause=cast(QueueCause, waited.idxmax()) if total else None,
        cause_share=float(waited.max()) / total if total else 0.0,
        busy_share=busy_s / (replicas * max(ended_s - first_s, 1e-9)),
        running_peak=int(steps["running"].max()) if len(steps) else 0,
        kv_peak_share=_kv_peak_share(steps, kv_tokens),
    )


def _waited_request_s(
    steps: pd.DataFrame, prompt_tokens: float, policies: Mapping[str, Any]
) -> pd.Series:
    """Requests times seconds in line, by cause."""
    line = steps["waiting"] * (steps["end_s"] - steps["start_s"])
    return line.groupby(causes(steps, prompt_tokens, policies)).sum()


def _growth_per_s(steps: pd.DataFrame, first_s: float, span_s: float, requests: int) -> float:
    """How fast the queue grows; 0 where it does not, or no more than queues do."""
    quarter_s = span_s / 4
    before, after = (
        _mean_waiting(steps, first_s + place * quarter_s, quarter_s) for place in (1, 3)
    )
    rise = after - before
    steady = rise < _LEAST_RISE or rise < GROWING_SHARE * requests / 2
    return 0.0 if steady else rise / (2 * quarter_s)


def _mean_waiting(steps: pd.DataFrame, start_s: float, lasted_s: float) -> float:
    ends_s = steps["end_s"].clip(upper=start_s + lasted_s)
    shared_s = (ends_s - steps["start_s"].clip(lower=start_s)).clip(lower=0)
    return float((steps["waiting"] * shared_s).sum()) / lasted_s


def _kv_peak_share(steps: pd.DataFrame, kv_tokens: int | None) -> float | None:
    if not kv_tokens or steps.empty:
        return None
    return 1 - float(steps["free_kv_tokens"].min()) / kv_tokens
