"""What a measured run tells of the causes of its latencies, beside the latencies.

Simulate again what a load test really sent: its send times, its lengths.

A client is never quite on time, and a server may answer with other lengths than the trace asked
for. Simulating what was sent, and measuring from when it was sent, takes both out of the
comparison: what is left is the error of the model.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from servetwin.app.calibration.calibrator import ServerLog
from servetwin.policies.step_record import StepRecord
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.experiments.recorded_scenario import recorded_scenario
from servetwin.sim.records.metrics import derive
from servetwin.sim.records.run import Run, RunError
from servetwin.workloads.graphs.repeats import Repeats
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

_MEASURED = ("sent_s", "prompt_tokens", "output_tokens", "reasoning_tokens")


def resimulate_as_sent(predicted: Run, measured: Run) -> tuple[Run, Run]:
    """Simulate the scenario of ``predicted`` on what ``measured``, a load test, recorded.

    Return the simulation, and the load test with latencies counted from its send times. Raises
    ``RunError`` for a scenario with a prefix cache, since a run folder does not keep which prompts
    share a prefix, and where the scenario cannot be built again.
    """
    scenario = recorded_scenario(predicted.scenario)
    if scenario.policies.prefix_cache:
        raise RunError(
            "the prediction has a prefix cache, and a run folder does not keep which prompts share "
            "a prefix"
        )
    sent = recorded_trace(measured)
    again = run_once(sent, scenario, seed=int(predicted.scenario.get("seed", 0)))
    again.scenario = predicted.scenario
    if "warm_up" in measured.requests:  # counts on neither side
        warm_up = measured.requests.loc[measured.requests["warm_up"], "request_id"]
        again.requests["warm_up"] = again.requests["request_id"].isin(warm_up)
    return again, as_sent(measured)


def recorded_trace(measured: Run) -> Trace:
    """Return the answered requests of a load test, at their send times, with their lengths.

    Raises ``RunError`` where nothing was answered.
    """
    answered = answered_rows(measured).sort_values("sent_s", kind="stable")
    rows = answered.reindex(columns=("request_id", *_MEASURED), fill_value=0)
    requests = tuple(
        Request(name, sent_s, prompt, output, reasoning_tokens=hidden or None)
        for name, sent_s, prompt, output, hidden in rows.itertuples(index=False)
    )
    name = measured.scenario.get("trace", "load test")
    return Trace(requests, name, notes=("as it was sent and answered",))


def as_sent(measured: Run) -> Run:
    """Return a load test with its latencies counted from when each request was sent."""
    requests = measured.requests.copy()
    requests["scheduled_s"] = requests["sent_s"].fillna(requests["scheduled_s"])
    return replace(measured, requests=derive(requests))


@dataclass(frozen=True, slots=True)
class MeasuredFacts:
    """What was measured in ``run``: the ``requests`` that were answered, and the ``steps``.

    The steps are on the clock of the run; None where no log has them.
    """

    run: Run
    requests: tuple[Request, ...]
    steps: Sequence[StepRecord] | None = None
    server: pd.DataFrame | None = None

    @property
    def answered(self) -> pd.DataFrame:
        """The rows of the answered requests, by request id."""
        ids = [request.request_id for request in self.requests]
        return self.run.requests.set_index("request_id").loc[ids]

    def trace(self) -> Trace:
        """Return the requests with measured send times and lengths."""
        rows = self.answered.reindex(columns=_MEASURED, fill_value=0)
        requests = [
            as_measured(request, *row)
            for request, row in zip(self.requests, rows.itertuples(index=False), strict=True)
        ]
        requests.sort(key=lambda one: one.arrival_s)
        return Trace(tuple(requests), str(self.run.scenario.get("trace", "measured run")))


def as_measured(
    request: Request, sent_s: float, prompt_tokens: int, output_tokens: int, reasoning_tokens: int
) -> Request:
    """Return a request with its measured send time and its lengths.

    A prompt of shared blocks keeps its length.
    """
    if request.prefix_block_ids:
        prompt_tokens = request.prompt_tokens
    return replace(
        request, arrival_s=sent_s, parent_ids=(), delay_s=None,
        prompt_tokens=prompt_tokens, output_tokens=output_tokens,
        reasoning_tokens=reasoning_tokens or None,
    )  # fmt: skip


def answered_rows(run: Run) -> pd.DataFrame:
    """Return the rows of the answered requests; raises ``RunError`` where there are none."""
    rows = run.requests
    answered = rows[(rows["status"] == "finished") & (rows["output_tokens"] > 0)]
    if answered.empty:
        raise RunError("no request of the measured run was answered")
    return answered


def measured_facts(run: Run, trace: Trace, log: ServerLog | None = None) -> MeasuredFacts:
    """Return what ``run``, of the requests of ``trace``, and the log of its server tell.

    Raises ``RunError`` where no request was answered.
    """
    answered = answered_rows(run)
    facts = MeasuredFacts(run, tuple(_sent(trace, [*answered["request_id"]])))
    return facts if log is None else _with_log(facts, log)


def _sent(trace: Trace, names: Sequence[str]) -> Iterator[Request]:
    """Yield the requests of ``names``; lanes send those of a trace again, under other names."""
    if not trace.lanes:
        ids = set(names)
        yield from (request for request in trace if request.request_id in ids)
        return
    by_id, repeats = {request.request_id: request for request in trace}, Repeats(trace)
    for name in names:
        base, _, number = name.rpartition("+")
        yield by_id[name] if name in by_id else repeats.again(by_id[base], int(number))


def _with_log(facts: MeasuredFacts, log: ServerLog) -> MeasuredFacts:
    """Return the facts with what the step log has of this run, on the clock of the run."""
    run = facts.run
    zero_s = float(run.meta["clock_zero_perf_counter_s"]) - log.clock_zero_s
    ids = dict(zip(run.requests["response_id"], run.requests["request_id"], strict=True))
    ours = [place for place, one in enumerate(log.steps) if any(e[0] in ids for e in one.entries)]
    if not ours:
        raise RunError("the step log has no step of this load test")
    steps = [replace(step, now_s=step.now_s - zero_s) for step in log.steps[ours[0] : ours[-1] + 1]]
    return replace(facts, steps=steps)
