"""The bottleneck of a server: whether the queue grows, what requests wait for, and how full batch,
memory and time are.

If the queue grows throughout a run, more requests arrive than are served. The growth is the mean
number waiting in the last quarter of the arrivals less that in the second, over half their span.
All waiting (requests times seconds) is divided among causes, one for each row of steps
(``sim.explain.queue_cause``).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import pandas as pd

from servetwin.sim.explain.queue_cause import QueueCause, causes
from servetwin.sim.records.run import Run
from servetwin.sim.records.steady_part import is_growth


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """``waited_s`` is the mean wait of a request, ``cause`` has ``cause_share`` of all waiting.

    ``busy_share`` is the busy part of the time from first arrival to last token. ``running_peak``
    and ``kv_peak_share`` are of the fullest replica; ``kv_peak_share`` is None if the memory is
    unbounded.
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
        """Whether the queue grows throughout the run."""
        return self.growth_per_s > 0

    @property
    def served_per_s(self) -> float:
        """Arrivals less the growth of the queue, in requests per second."""
        return self.arrivals_per_s - self.growth_per_s


def find_bottleneck(run: Run, policies: Mapping[str, Any], kv_tokens: int | None) -> Bottleneck:
    """Return the bottleneck of a simulated run.

    ``kv_tokens`` is the KV memory of each replica, None if unbounded.
    """
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
    """Return the waiting in requests times seconds, by cause."""
    line = steps["waiting"] * (steps["end_s"] - steps["start_s"])
    return line.groupby(causes(steps, prompt_tokens, policies)).sum()


def _growth_per_s(steps: pd.DataFrame, first_s: float, span_s: float, requests: int) -> float:
    """Return how fast the queue grows; 0 if it does not, or as little as stable queues do."""
    quarter_s = span_s / 4
    before, after = (
        _mean_waiting(steps, first_s + place * quarter_s, quarter_s) for place in (1, 3)
    )
    rise = after - before
    return rise / (2 * quarter_s) if is_growth(rise, requests) else 0.0


def _mean_waiting(steps: pd.DataFrame, start_s: float, lasted_s: float) -> float:
    ends_s = steps["end_s"].clip(upper=start_s + lasted_s)
    shared_s = (ends_s - steps["start_s"].clip(lower=start_s)).clip(lower=0)
    return float((steps["waiting"] * shared_s).sum()) / lasted_s


def _kv_peak_share(steps: pd.DataFrame, kv_tokens: int | None) -> float | None:
    if not kv_tokens or steps.empty:
        return None
    return 1 - float(steps["free_kv_tokens"].min()) / kv_tokens
