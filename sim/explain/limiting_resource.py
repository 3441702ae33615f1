"""What a server would need more of to keep its limits at a higher rate.

Where waiting matters, it is what most of the waiting was for (``sim.explain.bottleneck``). Waiting
for prompts that fill the steps is for the token budget, if a step that is full lasts less than
twice as long as one without prompts: a larger budget would compute more prompts in hardly more
time. Else it is for the computing of prompts.

Where waiting does not matter, and for the time per output token, it is the time of steps: of steps
with prompts or of steps without, whichever took more. Where most of the requests that miss the time
per output token had lost their KV memory, it is the memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from servetwin.policies.registry import SCHEDULERS
from servetwin.sim.explain.bottleneck import Bottleneck
from servetwin.sim.records.metrics import LATENCIES, SLO
from servetwin.sim.records.run import Run

Resource = Literal["memory", "sequences", "budget", "prefill", "decode", "batch"]
_OF_CAUSE: Mapping[str, Resource] = {
    "memory": "memory",
    "places": "sequences",
    "batch": "batch",
    "filling": "batch",
}
WAIT_WORTH_NAMING = 0.1
"""A mean wait below this share of the mean latency is no bottleneck."""
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
