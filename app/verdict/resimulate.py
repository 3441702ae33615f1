"""Simulate again what a load test really sent: its send times, its lengths.

A client is never quite on time, and a server may answer with other lengths than the trace asked
for. Simulating what was sent, and measuring from when it was sent, takes both out of the
comparison: what is left is the error of the model.
"""

from dataclasses import replace

from servetwin.app.verdict.measured_facts import answered_rows, as_measured
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.experiments.recorded_scenario import recorded_scenario
from servetwin.sim.records.metrics import derive
from servetwin.sim.records.run import Run, RunError
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

_RECORDED = ("request_id", "sent_s", "prompt_tokens", "output_tokens")


def resimulate_as_sent(
    predicted: Run, measured: Run, trace: Trace | None = None
) -> tuple[Run, Run]:
    """Simulate the scenario of ``predicted`` on what ``measured``, a load test, recorded.

    Return the simulation, and the load test with latencies counted from its send times. A run
    folder does not keep which prompts share a prefix: a scenario with a prefix cache needs the
    ``trace``. Raises ``RunError`` without it, and where the scenario cannot be built again.
    """
    scenario = recorded_scenario(predicted.scenario)
    if scenario.policies.prefix_cache and trace is None:
        raise RunError(
            "the prediction has a prefix cache, and a run folder does not keep which prompts share "
            "a prefix"
        )
    sent = recorded_trace(measured, trace)
    again = run_once(sent, scenario, seed=int(predicted.scenario.get("seed", 0)))
    again.scenario = predicted.scenario
    if "warm_up" in measured.requests:  # counts on neither side
        warm_up = measured.requests.loc[measured.requests["warm_up"], "request_id"]
        again.requests["warm_up"] = again.requests["request_id"].isin(warm_up)
    return again, as_sent(measured)


def recorded_trace(measured: Run, trace: Trace | None = None) -> Trace:
    """Return the answered requests of a load test, at their send times, with their lengths.

    Prefixes, sessions and priorities come from ``trace``, by request id. Raises ``RunError`` where
    nothing was answered.
    """
    answered = answered_rows(measured).sort_values("sent_s", kind="stable")
    traced = {request.request_id: request for request in trace or ()}
    columns = (answered[name].tolist() for name in _RECORDED)
    requests = [
        as_measured(traced.get(name) or Request(name, sent_s, *lengths), sent_s, lengths)
        for name, sent_s, *lengths in zip(*columns, strict=True)
    ]
    name = measured.scenario.get("trace", "load test")
    return Trace(tuple(requests), name, notes=("as it was sent and answered",))


def as_sent(measured: Run) -> Run:
    """Return a load test with its latencies counted from when each request was sent."""
    requests = measured.requests.copy()
    requests["scheduled_s"] = requests["sent_s"].fillna(requests["scheduled_s"])
    return replace(measured, requests=derive(requests))
