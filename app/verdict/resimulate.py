"""Simulate again what a load test really sent: its send times, its lengths.

A client is never quite on time, and a server may answer with other lengths than the trace asked
for. Simulating what was sent, and measuring from when it was sent, takes both out of the
comparison: what is left is the error of the model.
"""

from dataclasses import dataclass, replace

import pandas as pd

from servetwin.app.verdict.claims import Comparison, RequestDifferences, compare, compare_requests
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.experiments.recorded_scenario import recorded_scenario
from servetwin.sim.records.metrics import derive
from servetwin.sim.records.run import Run, RunError
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

_RECORDED = ("request_id", "sent_s", "prompt_tokens", "output_tokens")


@dataclass(frozen=True, slots=True)
class Resimulation:
    """``predicted`` on the recorded sends, ``measured`` counted from them, and how they compare."""

    predicted: Run
    measured: Run
    comparison: Comparison
    requests: RequestDifferences


def resimulate_as_sent(predicted: Run, measured: Run, trace: Trace | None = None) -> Resimulation:
    """Simulate the scenario of ``predicted`` on what ``measured``, a load test, recorded.

    A run folder does not keep which prompts share a prefix: a scenario with a prefix cache needs
    the ``trace``. Raises ``RunError`` without it, and where the scenario cannot be built again.
    """
    scenario = recorded_scenario(predicted.scenario)
    if scenario.policies.prefix_cache and trace is None:
        raise RunError(
            "the prediction has a prefix cache, and a run folder does not keep which prompts share "
            "a prefix"
        )
    sent = recorded_trace(measured, trace)
    seed = int(predicted.scenario.get("seed", 0))
    again = run_once(sent, scenario, seed=seed)
    again.scenario = predicted.scenario
    mark_warm_up(again, measured)
    from_sent = as_sent(measured)
    return Resimulation(
        again, from_sent, compare(again, [from_sent]), compare_requests(again, from_sent)
    )


def mark_warm_up(predicted: Run, measured: Run) -> None:
    """Mark the warm-up requests of a load test in the prediction too, so that neither counts."""
    warm_up = measured.requests.get("warm_up")
    if warm_up is not None and warm_up.any():
        marked = measured.requests.loc[warm_up, "request_id"]
        predicted.requests["warm_up"] = predicted.requests["request_id"].isin(marked)


def recorded_trace(measured: Run, trace: Trace | None = None) -> Trace:
    """Return the answered requests of a load test, at their send times, with their lengths.

    Prefixes, sessions and priorities come from ``trace``, by request id. Raises ``RunError`` where
    nothing was answered.
    """
    rows = measured.requests
    answered = rows[(rows["status"] == "finished") & (rows["output_tokens"] > 0)]
    if answered.empty:
        raise RunError("no request of the load test was answered")
    answered = answered.sort_values("sent_s", kind="stable")
    known = {request.request_id: request for request in trace or ()}
    columns = (answered[name].tolist() for name in _RECORDED)
    requests = [
        _as_recorded(known.get(request_id), request_id, *recorded)
        for request_id, *recorded in zip(*columns, strict=True)
    ]
    name = measured.scenario.get("trace", "load test")
    return Trace(tuple(requests), name, notes=("as it was sent and answered",))


def _as_recorded(
    traced: Request | None, request_id: str, sent_s: float, prompt_tokens: int, output_tokens: int
) -> Request:
    """Return a request as it was recorded; a prompt of shared blocks keeps its length."""
    if traced is None:
        return Request(request_id, sent_s, prompt_tokens, output_tokens)
    length = traced.prompt_tokens if traced.prefix_block_ids else prompt_tokens
    return replace(
        traced, arrival_s=sent_s, prompt_tokens=length, output_tokens=output_tokens,
        parent_id=None, delay_s=None,
    )  # fmt: skip


def as_sent(measured: Run) -> Run:
    """Return a load test with its latencies counted from when each request was sent."""
    requests = measured.requests.copy()
    requests["scheduled_s"] = requests["sent_s"].fillna(requests["scheduled_s"])
    columns: pd.DataFrame = derive(requests)
    return replace(measured, requests=columns)
