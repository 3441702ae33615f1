"""The spans of each request: contiguous, from its scheduled time to its last token.

Spans are the stages of ``sim.explain.spans``, cut where a request was preempted. A span
"preempted" lasts until the request is as far as before: it is resumed, and the lost tokens are
computed again. A run does not keep which chunk of a step belongs to which request. So the recompute
is taken to end with the step by which as many prompt rows have run as the request had tokens, or
after which no prompt rows run: at most one step off without a prefix cache. A request that was
preempted before its first token is in "prefill" as soon as it is resumed, a request that was
swapped out in "decode".
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from servetwin.sim.core.recorder import STEP_COLUMNS
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.step_time import ApiLatency, FloatArray

# Stamps that differ by no more are equal: those of requests are rounded a few more times.
SLACK_S = 1e-7


class StepRows:
    """The rows of ``Run.steps`` of one replica, in the order of time."""

    def __init__(self, steps: pd.DataFrame) -> None:
        self.frame = steps
        self.start_s: FloatArray = steps["start_s"].to_numpy(float)
        self.end_s: FloatArray = steps["end_s"].to_numpy(float)

    def within(self, start_s: float, end_s: float) -> pd.DataFrame:
        """Return the rows inside an interval."""
        first = np.searchsorted(self.start_s, start_s - SLACK_S)
        last = np.searchsorted(self.end_s, end_s + SLACK_S, "right")
        return self.frame.iloc[first:last]

    def touching(self, start_s: float, end_s: float) -> pd.DataFrame:
        """Return the rows that overlap an interval."""
        first = np.searchsorted(self.end_s, start_s, "right")
        last = np.searchsorted(self.start_s, end_s)
        return self.frame.iloc[first:last]

    def next_start_s(self, stamps_s: FloatArray) -> FloatArray:
        """Return the first start of a row at or after each stamp; infinite if there is none."""
        place = np.searchsorted(self.start_s, stamps_s - SLACK_S)
        return np.append(self.start_s, np.inf)[place]


def by_replica(steps: pd.DataFrame) -> dict[int, StepRows]:
    """Return the rows of every replica; none if the run has no steps with all their columns."""
    if not set(STEP_COLUMNS) <= set(steps.columns):
        return {}
    ordered = steps.sort_values(["start_s", "end_s"], kind="stable")
    by_number = ordered.groupby(ordered["replica"].astype(int), sort=False)
    return {number: StepRows(rows) for number, rows in by_number}


IntArray = npt.NDArray[np.int64]

SERVER_STAGES = ("api", "queue", "prefill", "transfer", "queue", "decode", "api")
_POINTS = ("scheduled_s", "arrived_s", "admitted_s", "prefilled_s", "moved_s", "joined_s",
           "ended_s", "last_token_s")  # fmt: skip
CLIENT_STAGES = ("send_lag", "first_token", "streaming")


@dataclass(frozen=True, slots=True)
class Stages:
    """Stage ``i`` of a request lasts from ``points_s[row, i]`` to ``points_s[row, i + 1]``.

    Stamps of a row do not decrease. If a request did not finish, its stamps are undefined from the
    first that did not happen. ``replicas`` [row, 2] are those of its prefill and of its decodes.
    """

    names: tuple[str, ...]
    points_s: FloatArray
    replicas: IntArray

    def stamps_s(self, end_of: str) -> FloatArray:
        """Return when each request first left a stage."""
        return self.points_s[:, self.names.index(end_of) + 1]

    def present(self, replica: int, now_s: float) -> npt.NDArray[np.bool_]:
        """Return which requests are on a replica that computes their prompt, at a time."""
        moved = self.replicas[:, 0] != self.replicas[:, 1]
        last = -2 if self.names == SERVER_STAGES else -1
        left_s = self.points_s[:, last].copy()
        if moved.any():
            left_s[moved] = self.stamps_s("prefill")[moved]
        here: npt.NDArray[np.bool_] = self.replicas[:, 0] == replica
        return here & (self.points_s[:, 1] <= now_s) & (left_s > now_s)


def client_stages(requests: pd.DataFrame) -> Stages:
    """Return the stages that a client sees."""
    stamps = requests[["scheduled_s", "sent_s", "first_token_s", "last_token_s"]].to_numpy(float)
    return Stages(CLIENT_STAGES, np.maximum.accumulate(stamps, axis=1), _own_replicas(requests))


def server_stages(run: Run, rows: dict[int, StepRows], api: ApiLatency | None) -> Stages:
    """Return the stages of a simulation; ``rows`` are its steps by replica.

    If the latency of the API is not known, a request is taken to be admitted by the first step
    after its queueing time, and a token to come from the last step before the client had it.
    """
    handover = run.handovers.set_index("row").reindex(range(len(run.requests)))
    replicas = _replicas(run, handover)
    stamps = _step_stamps(run.requests, replicas, rows, api)
    stamps["prefilled_s"] = handover["prefill_end_s"].fillna(stamps["prefilled_s"])
    stamps["moved_s"] = handover["transfer_end_s"].fillna(stamps["prefilled_s"])
    stamps["joined_s"] = handover["decode_start_s"].fillna(stamps["moved_s"])
    in_order = np.maximum.accumulate(stamps[list(_POINTS)].to_numpy(float), axis=1)
    last_s = stamps[["last_token_s"]].to_numpy(float)
    return Stages(SERVER_STAGES, np.fmin(in_order, last_s), replicas)


def _step_stamps(
    requests: pd.DataFrame, replicas: IntArray, rows: dict[int, StepRows], api: ApiLatency | None
) -> pd.DataFrame:
    """Return the stamps of the client, and the start or end of the step of each."""
    stamps = requests[["scheduled_s", "first_token_s", "last_token_s"]].astype(float)
    queue_s = requests["queue_s"].to_numpy(float)
    due_s = stamps["scheduled_s"].to_numpy() + _sending_s(requests, api) + queue_s
    first_s, last_s = stamps[["first_token_s", "last_token_s"]].to_numpy(float).T
    admitted_s, prefilled_s, ended_s = np.full((3, len(requests)), np.nan)
    for replica, steps in rows.items():
        prefill, decode = (replicas == replica).T
        admitted_s[prefill] = steps.next_start_s(due_s[prefill])
        prefilled_s[prefill] = _step_end_s(steps, api, first_s[prefill])
        ended_s[decode] = _step_end_s(steps, api, last_s[decode])
    arrived_s = admitted_s - queue_s
    at_once = np.abs(arrived_s - stamps["scheduled_s"]) < SLACK_S
    arrived_s = np.where(at_once, stamps["scheduled_s"], arrived_s)
    return stamps.assign(
        arrived_s=arrived_s, admitted_s=admitted_s, prefilled_s=prefilled_s, ended_s=ended_s
    )


def _replicas(run: Run, handover: pd.DataFrame) -> IntArray:
    """Return the replicas of prefill and decode; after a handover, found from its stamps."""
    replicas = _own_replicas(run.requests)
    handed = handover["decode_start_s"].notna().to_numpy()
    ends = (("end_s", "prefill_end_s"), ("start_s", "decode_start_s"))
    for place, (column, stamp) in enumerate(ends):
        if handed.any():
            stamps_s = handover[stamp].to_numpy(float)[handed]
            replicas[handed, place] = _replica_at(run.steps, column, stamps_s)
    return replicas


def _own_replicas(requests: pd.DataFrame) -> IntArray:
    return np.repeat(requests["replica"].to_numpy(np.int64)[:, None], 2, axis=1)


def _replica_at(steps: pd.DataFrame, column: str, stamps_s: FloatArray) -> IntArray:
    ordered = steps.sort_values(column, kind="stable")
    place = np.searchsorted(ordered[column].to_numpy(float), stamps_s - SLACK_S)
    replica: IntArray = ordered["replica"].to_numpy(np.int64)
    return replica[np.minimum(place, len(replica) - 1)]


def _sending_s(requests: pd.DataFrame, api: ApiLatency | None) -> FloatArray:
    if api is None:
        return np.zeros(len(requests))
    return np.array([api.request_in_s(n) for n in requests["prompt_tokens"].tolist()])


def _step_end_s(steps: StepRows, api: ApiLatency | None, stamps_s: FloatArray) -> FloatArray:
    """Return the end of the step whose token a client had at each stamp."""
    if api is None:
        place = np.searchsorted(steps.end_s, stamps_s + SLACK_S, "right") - 1
        ends_s = steps.end_s[np.maximum(place, 0)]
    else:
        at_client_s = steps.end_s + _receiving_s(steps.frame, api)
        order = np.argsort(at_client_s, kind="stable")
        ends_s = steps.end_s[order][_nearest(at_client_s[order], stamps_s)]
    return np.where(np.isnan(stamps_s), np.nan, ends_s)


def _receiving_s(frame: pd.DataFrame, api: ApiLatency) -> FloatArray:
    sequences = frame["decode_sequences"].to_numpy(int) + frame["prefill_chunks"].to_numpy(int)
    return np.array([api.chunk_out_s(n) for n in sequences.tolist()])


def _nearest(ordered: FloatArray, values: FloatArray) -> IntArray:
    """Return the indices in ``ordered`` of the entries nearest to ``values``."""
    middles = (ordered[1:] + ordered[:-1]) / 2
    return np.searchsorted(middles, values)


# Start and end of a preemption, in seconds.
Pause = tuple[float, float]


class Span(NamedTuple):
    """A part of the time of a request: ``part`` is a stage, or "preempted"."""

    part: str
    start_s: float
    end_s: float


class RequestSpans:
    """The spans of the requests of a run, by row."""

    def __init__(self, run: Run, api: ApiLatency | None) -> None:
        self.steps = by_replica(run.steps)
        self.stages = (
            server_stages(run, self.steps, api) if self.steps else client_stages(run.requests)
        )
        self._prompt_tokens = run.requests["prompt_tokens"].tolist()
        self._swaps = (run.scenario.get("policies") or {}).get("preemption") == "swap"
        self._pauses: dict[int, list[Pause]] = defaultdict(list)
        for row, start_s, end_s in run.pauses.dropna().itertuples(index=False):
            self._pauses[row].append((start_s, end_s))

    def of(self, row: int) -> list[Span]:
        """Return the spans of a request up to its last token; none without a last token."""
        points_s = self.stages.points_s[row].tolist()
        if points_s[-1] != points_s[-1]:
            return []
        spans = []
        for part, start_s, end_s in zip(self.stages.names, points_s, points_s[1:], strict=False):
            inside = [p for p in self._pauses.get(row, ()) if start_s <= p[0] < end_s]
            if part == "decode" and not self._swaps:
                inside = list(self._with_recompute(row, start_s, inside))
            spans += _cut(Span(part, start_s, end_s), inside)
        return [span for span in spans if span.end_s > span.start_s]

    def away_at(self, row: int, now_s: float) -> bool:
        """Return whether a request is preempted at a time."""
        return any(start_s <= now_s < end_s for start_s, end_s in self._pauses.get(row, ()))

    def steps_of(self, row: int) -> StepRows:
        """Return the steps of the replica that decoded a request."""
        return self.steps[int(self.stages.replicas[row, 1])]

    def _with_recompute(self, row: int, start_s: float, pauses: list[Pause]) -> Iterator[Pause]:
        steps = self.steps_of(row)
        tokens = self._prompt_tokens[row] + 1
        for lost_s, back_s in pauses:
            before = steps.within(start_s, lost_s)
            tokens += int(before.loc[before["decode_sequences"] > 0, "steps"].sum())
            start_s = _recomputed_s(steps, back_s, tokens)
            tokens += 1
            yield lost_s, start_s


def _cut(span: Span, pauses: list[Pause]) -> list[Span]:
    """Return the pieces of a span around its pauses, and the pauses, in order."""
    pieces, start_s = [], span.start_s
    for lost_s, back_s in pauses:
        until_s = min(back_s, span.end_s)
        pieces += [Span(span.part, start_s, lost_s), Span("preempted", lost_s, until_s)]
        start_s = until_s
    return [*pieces, Span(span.part, start_s, span.end_s)]


def _recomputed_s(steps: StepRows, back_s: float, tokens: int) -> float:
    """Return when the steps from ``back_s`` on have computed ``tokens`` prompt rows, or end."""
    frame = steps.frame
    chunks, rows = frame["prefill_chunks"].to_numpy(), frame["rows"].to_numpy()
    decodes = frame["decode_sequences"].to_numpy()
    place = int(np.searchsorted(steps.start_s, back_s - SLACK_S))
    left = tokens - int(rows[place] - decodes[place])
    while left > 0 and place + 1 < len(frame) and chunks[place + 1]:
        place += 1
        left -= int(rows[place] - decodes[place])
    return float(steps.end_s[place])
