"""The bottleneck of a server: whether the queue grows, what requests wait for, and how full batch,
memory and time are.

If the queue grows throughout a run, more requests arrive than are served. The growth is the mean
number waiting in the last quarter of the arrivals less that in the second, over half their span.
All waiting (requests times seconds) is divided among causes, one for each row of steps
(``sim.explain.bottleneck``).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from servetwin.policies.registry import SCHEDULERS
from servetwin.sim.records.metrics import LATENCIES, SLO
from servetwin.sim.records.run import Run
from servetwin.sim.records.steady_part import is_growth

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


Resource = Literal["memory", "sequences", "budget", "prefill", "decode", "batch"]
_OF_CAUSE: Mapping[str, Resource] = {
    "memory": "memory",
    "places": "sequences",
    "batch": "batch",
    "filling": "batch",
}
# A mean wait below this share of the mean latency is no bottleneck.
WAIT_WORTH_NAMING = 0.1
_LITTLE_LONGER = 2.0


@dataclass(frozen=True, slots=True)
class Limiting:
    """A resource, and its share of the waiting; None where it is not waiting that matters."""

    resource: Resource
    share_of_waiting: float | None = None


def limiting_resource(
    run: Run, pressed: Bottleneck, policies: Mapping[str, Any], slo: SLO
) -> Limiting:
    """Return what limits a simulated run with this bottleneck."""
    late = _late_tokens(run.requests, slo)
    if late.any():
        preempted = run.requests.loc[late, "preemptions"] > 0
        return Limiting("memory" if preempted.mean() > 0.5 else _slow_steps(run.steps))
    if pressed.cause is None or not _waits_matter(run, pressed):
        return Limiting(_slow_steps(run.steps))
    resource = _OF_CAUSE.get(pressed.cause)
    if resource is None and pressed.cause == "prompts":
        resource = _of_prompts(run, policies)
    return Limiting(resource or _slow_steps(run.steps), pressed.cause_share)


def _late_tokens(requests: pd.DataFrame, slo: SLO) -> pd.Series:
    """Return which requests miss the time per output token; none unless it is missed by most."""
    limits = {name: getattr(slo, name) for name in LATENCIES}
    late = {n: requests[n] > limit for n, limit in limits.items() if limit is not None}
    most = max(late, key=lambda name: late[name].sum(), default=None)
    return late["tpot_s"] if most == "tpot_s" else pd.Series(False, requests.index)


def _waits_matter(run: Run, pressed: Bottleneck) -> bool:
    """Return whether waiting is a part of the latency that is worth naming."""
    mean_e2e_s = float(run.requests["e2e_s"].mean())
    return pressed.overloaded or pressed.waited_s > WAIT_WORTH_NAMING * mean_e2e_s


def _slow_steps(steps: pd.DataFrame) -> Resource:
    """Return which steps take most of the time: steps with prompts or steps without."""
    lasted_s = steps["end_s"] - steps["start_s"]
    with_prompts_s = lasted_s[steps["prefill_chunks"] > 0].sum()
    return "prefill" if with_prompts_s > lasted_s.sum() / 2 else "decode"


def _of_prompts(run: Run, policies: Mapping[str, Any]) -> Resource:
    """Return what waiting for prompts that fill the steps is for: a larger budget or more speed."""
    if not getattr(SCHEDULERS.get(policies["batching"]), "has_token_budget", True):
        return "prefill"
    steps, next_tokens = run.steps, float(run.requests["prompt_tokens"].mean())
    lasted_s = (steps["end_s"] - steps["start_s"]) / steps["steps"]
    has_prompts = steps["prefill_chunks"] > 0
    is_full = has_prompts & (steps["rows"] + next_tokens > policies["token_budget"])
    full_s, without_s = lasted_s[is_full].median(), lasted_s[~has_prompts].median()
    return "budget" if full_s < _LITTLE_LONGER * without_s else "prefill"
