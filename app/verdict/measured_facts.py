"""What a measured run tells of the causes of its latencies, beside the latencies."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from servetwin.app.calibration.calibrator import ServerLog
from servetwin.policies.step_record import StepRecord
from servetwin.sim.records.run import Run, RunError
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

_MEASURED = ("sent_s", "prompt_tokens", "output_tokens")


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
        columns = (self.answered[name].tolist() for name in _MEASURED)
        requests = [
            as_measured(request, sent_s, lengths)
            for request, sent_s, *lengths in zip(self.requests, *columns, strict=True)
        ]
        requests.sort(key=lambda one: one.arrival_s)
        return Trace(tuple(requests), str(self.run.scenario.get("trace", "measured run")))


def as_measured(request: Request, sent_s: float, lengths: Sequence[int]) -> Request:
    """Return a request with its measured send time and its prompt and output lengths.

    A prompt of shared blocks keeps its length.
    """
    prompt_tokens, output_tokens = lengths
    if request.prefix_block_ids:
        prompt_tokens = request.prompt_tokens
    return replace(
        request, arrival_s=sent_s, parent_ids=(), delay_s=None,
        prompt_tokens=prompt_tokens, output_tokens=output_tokens,
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
    ids = set(answered["request_id"])
    requests = tuple(request for request in trace if request.request_id in ids)
    facts = MeasuredFacts(run, requests)
    return facts if log is None else _with_log(facts, log)


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
