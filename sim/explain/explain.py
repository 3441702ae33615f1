"""The latency of one request, divided into parts.

===========  ==================================================================================
queue        from arrival at the server to the first step that computes it; after a handover,
             to the first step that decodes
prefill      to the end of the step that gives the first token
decode       to the end of the step that gives the last token, less what follows
stalled      what the prompts of others added to those steps (``sim.explain.explain``)
preempted    without a place in the batch, and computing again what was lost (``sim.explain.spans``)
transfer     moving keys and values to another replica
api          the HTTP process, before arrival at the server and after the last step
===========  ==================================================================================

A load test sees the server as a black box, without steps. It has three parts: "send_lag" (the
client was late), "first_token" (network, queue and prefill) and "streaming" (the rest).
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from servetwin.policies.batch import Batch, BatchShape
from servetwin.policies.protocols import KVLayout
from servetwin.sim.experiments.recorded_scenario import recorded_scenario
from servetwin.sim.explain.bottleneck import QueueCause, queue_cause
from servetwin.sim.explain.spans import CLIENT_STAGES, RequestSpans, Span, StepRows
from servetwin.sim.records.metrics import LATENCIES
from servetwin.sim.records.run import Run, RunError
from servetwin.sim.step_times.server_model import ServerModel
from servetwin.sim.step_times.step_time import FloatArray, StepTime, shape_for
from servetwin.workloads.errors import ProfileError, ServetwinError
from servetwin.workloads.plugins import names_a_file
from servetwin.workloads.program.package import shipped_json


class Stalls:
    """The stalls in the steps of one replica."""

    def __init__(self, steps: StepRows, model: StepTime | None) -> None:
        self._model = model
        quiet = steps.frame[steps.frame["prefill_chunks"] == 0]
        self._quiet_s = ((quiet["start_s"] + quiet["end_s"]) / 2).to_numpy(float)
        self._quiet_step_s = ((quiet["end_s"] - quiet["start_s"]) / quiet["steps"]).to_numpy(float)

    @property
    def known(self) -> bool:
        """Whether there is a model, or a step without chunks to estimate from."""
        return self._model is not None or len(self._quiet_s) > 0

    def stalled_s(self, rows: pd.DataFrame) -> float:
        """Return the seconds for which a sequence that decodes in all ``rows`` is stalled."""
        if not self.known:
            return 0.0
        mixed = rows[rows["prefill_chunks"] > 0]
        lasted_s = (mixed["end_s"] - mixed["start_s"]).to_numpy(float)
        alone_s = np.where(mixed["decode_sequences"] > 0, self._alone_s(mixed), 0.0)
        return float((lasted_s - np.minimum(alone_s, lasted_s)).sum())

    def _alone_s(self, mixed: pd.DataFrame) -> FloatArray:
        if self._model is not None:
            return _modelled_s(self._model, mixed)
        middle_s = ((mixed["start_s"] + mixed["end_s"]) / 2).to_numpy(float)
        steps = mixed["steps"].to_numpy(float)
        step_s: FloatArray = np.interp(middle_s, self._quiet_s, self._quiet_step_s)
        return steps * step_s


def _modelled_s(model: StepTime, mixed: pd.DataFrame) -> FloatArray:
    columns = mixed[["decode_sequences", "decode_context_tokens", "steps"]]
    alone_s = [
        model.seconds(BatchShape(decodes, context, decodes), steps).sum()
        for decodes, context, steps in columns.itertuples(index=False)
    ]
    return np.array(alone_s)


_LAYOUTS: dict[str, KVLayout] = {"paged": "paged", "grouped": "paged", "contiguous": "contiguous"}
_COUNTS = ("prompt_tokens", "output_tokens", "cached_tokens", "preemptions", "replica")
# The parts of a request's time, in order; they sum to its E2E latency.
PARTS = ("queue", "prefill", "decode", "stalled", "preempted", "transfer", "api")
# What is not known of a request, and what is said instead.
_NOTES: dict[str, str] = shipped_json("sim/explain/notes.json")


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The other requests beside a request.

    ``waiting`` and ``running`` count the other requests on its replica when it arrived, without
    those that never got a place (in a load test, ``running`` counts those sent and not answered).
    ``mean_batch`` is the mean number of sequences in a step while it decoded, over time.
    """

    waiting: int | None
    running: int
    mean_batch: float | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of a request: ``parts_s`` sum to ``e2e_s``; empty without a last token.

    ``waited_s`` is the part of the TTFT before its prompt began, ``cause`` what it waited for.
    ``notes`` say what is not known.
    """

    request_id: str
    status: str
    error: str
    scheduled_s: float
    ttft_s: float | None
    tpot_s: float | None
    e2e_s: float | None
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    preemptions: int
    replica: int
    parts_s: Mapping[str, float]
    waited_s: float | None
    cause: QueueCause | None
    neighbours: Neighbours | None
    notes: tuple[str, ...]


class Explainer:
    """Explains the requests of one run.

    The step-time models and the latency of the API are those of ``servers``, one per replica; by
    default, those of the servers that the scenario of the run names. If these cannot be built
    again, the notes of an explanation say what is estimated instead.
    """

    def __init__(self, run: Run, servers: Sequence[ServerModel] = ()) -> None:
        self._run = run
        self._policies: Mapping[str, Any] = run.scenario.get("policies") or {}
        servers = servers or servers_of(run)
        self.spans = RequestSpans(run, servers[0].api.model() if servers else None)
        self._models = {
            # a scenario without a cluster names one server for all replicas
            r: _model(servers[min(r, len(servers) - 1)], self._policies) if servers else None
            for r in self.spans.steps
        }
        self._stalls = {r: Stalls(of, self._models[r]) for r, of in self.spans.steps.items()}
        self._outside = self.spans.stages.names == CLIENT_STAGES

    def explain(self, request_id: str) -> Explanation:
        """Explain a request. Raises ``RunError`` with the nearest ids for an unknown one."""
        return self._explain_row(self.row_of(request_id))

    def row_of(self, request_id: str) -> int:
        """Return the row of a request. Raises ``RunError`` as ``explain``."""
        ids = self._run.requests["request_id"]
        rows = np.flatnonzero(ids == request_id)
        if not len(rows):
            raise RunError(f"no request {request_id!r} in this run; {_nearest(request_id, ids)}")
        return int(rows[0])

    def waited_behind(self, request_id: str) -> pd.DataFrame:
        """Return the rows of ``Run.steps`` during its wait for prefill; none in a load test.

        Raises ``RunError`` as ``explain``.
        """
        row = self.row_of(request_id)
        if self._outside or not self.spans.of(row):
            return self._run.steps.iloc[:0]
        return self._queued_behind(row)

    def slowest(self, count: int) -> list[Explanation]:
        """Explain the ``count`` finished requests of the highest E2E latency, the slowest first."""
        requests = self._run.requests
        e2e_s = requests.loc[requests["status"] == "finished", "e2e_s"]
        return [self._explain_row(int(row)) for row in e2e_s.nlargest(count).index]

    def _explain_row(self, row: int) -> Explanation:
        request = self._run.requests.iloc[row]
        spans = self.spans.of(row)
        numbers: dict[str, Any] = {name: _defined(request[name]) for name in LATENCIES}
        numbers |= {name: int(request[name]) for name in _COUNTS}
        return Explanation(
            request_id=str(request["request_id"]),
            status=str(request["status"]),
            error=str(request["error"] or ""),
            scheduled_s=float(request["scheduled_s"]),
            **numbers,
            parts_s=self._parts_s(row, spans) if spans else {},
            waited_s=_defined(request["queue_s"]),
            cause=self._cause(row) if spans and not self._outside else None,
            neighbours=self._neighbours(row, spans) if spans else None,
            notes=self._notes(row, spans) if spans else (),
        )

    def _parts_s(self, row: int, spans: list[Span]) -> dict[str, float]:
        parts_s = dict.fromkeys(CLIENT_STAGES if self._outside else PARTS, 0.0)
        for part, start_s, end_s in spans:
            parts_s[part] += end_s - start_s
        if not self._outside:
            stalled_s = min(self._stalled_s(row, spans), parts_s["decode"])
            parts_s["decode"] -= stalled_s
            parts_s["stalled"] = stalled_s
        return parts_s

    def _saw_prompts(self, row: int, spans: list[Span]) -> bool:
        """Return whether any prompt was computed while the request decoded."""
        return any(rows["prefill_chunks"].any() for rows in self._decode_rows(row, spans))

    def _stalled_s(self, row: int, spans: list[Span]) -> float:
        stalls = self._stalls[int(self.spans.stages.replicas[row, 1])]
        return sum(map(stalls.stalled_s, self._decode_rows(row, spans)))

    def _decode_rows(self, row: int, spans: list[Span]) -> list[pd.DataFrame]:
        """Return the steps in each span in which the request decoded."""
        steps = self.spans.steps_of(row)
        return [steps.within(s.start_s, s.end_s) for s in spans if s.part == "decode"]

    def _queued_behind(self, row: int) -> pd.DataFrame:
        stages = self.spans.stages
        steps = self.spans.steps[int(stages.replicas[row, 0])]
        return steps.touching(*stages.points_s[row, 1:3].tolist())

    def _cause(self, row: int) -> QueueCause | None:
        arrived_s, admitted_s = self.spans.stages.points_s[row, 1:3].tolist()
        rows = self._queued_behind(row)
        prompt_tokens = int(self._run.requests["prompt_tokens"].iloc[row])
        return queue_cause(rows, arrived_s, admitted_s, prompt_tokens, self._policies)

    def _neighbours(self, row: int, spans: list[Span]) -> Neighbours:
        stages = self.spans.stages
        now_s = float(stages.points_s[row, 1])
        present = stages.present(int(stages.replicas[row, 0]), now_s)
        present[row] = False
        if self._outside:
            return Neighbours(None, int(present.sum()), None)
        away = [self.spans.away_at(int(other), now_s) for other in np.flatnonzero(present)]
        waits = stages.stamps_s("queue")[present] > now_s
        waiting = int((waits | np.array(away, bool)).sum())
        return Neighbours(waiting, int(present.sum()) - waiting, self._mean_batch(row, spans))

    def _mean_batch(self, row: int, spans: list[Span]) -> float | None:
        decodes = self._decode_rows(row, spans)
        if not decodes:
            return None
        rows = pd.concat(decodes)
        batch = rows["decode_sequences"] + rows["prefill_chunks"]
        lasted_s = rows["end_s"] - rows["start_s"]
        return float(np.average(batch, weights=lasted_s)) if lasted_s.sum() > 0 else None

    def _notes(self, row: int, spans: list[Span]) -> tuple[str, ...]:
        if self._outside:
            return (_NOTES["outside"], *_longest_gap(self._run.requests.iloc[row]))
        replica = int(self.spans.stages.replicas[row, 1])
        if self._models[replica] is not None or not self._saw_prompts(row, spans):
            return ()
        return (_NOTES["no model" if self._stalls[replica].known else "no stalls"],)


def servers_of(run: Run) -> Sequence[ServerModel]:
    """Return the servers that the run's scenario names; none where it cannot be built again.

    Step times of a file are not loaded: explaining a run executes no code that the run names.
    """
    profiles = run.scenario.get("profile") or ()
    if any(map(names_a_file, map(str, profiles if isinstance(profiles, list) else [profiles]))):
        return ()
    try:
        return recorded_scenario(run.scenario).replicas()
    except ServetwinError:
        return ()


def _model(server: ServerModel, policies: Mapping[str, Any]) -> StepTime | None:
    layout = _LAYOUTS.get(policies.get("kv", ""))
    if layout is None:
        return None
    try:
        model = server.step_time(layout).model()
    except ProfileError:
        return None
    return model if shape_for(model) is Batch.shape else None


def _nearest(request_id: str, ids: pd.Series) -> str:
    near = difflib.get_close_matches(request_id, ids.tolist(), n=3)
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    return f"there are {len(ids)}, such as {', '.join(map(repr, ids[:3]))}"


def _longest_gap(request: pd.Series) -> tuple[str, ...]:
    gaps_s = np.diff(request.get("chunk_s", ()))
    if not len(gaps_s):
        return ()
    place = int(gaps_s.argmax())
    return (
        f"the longest gap between chunks was {gaps_s[place]:.3f} s, before chunk {place + 2} of "
        f"{len(gaps_s) + 1}",
    )


def _defined(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
