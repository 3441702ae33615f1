"""The stages of requests and the stamps between them, for all requests of a run at once.

A simulated request goes through::

    scheduled - api - arrived - queue - admitted - prefill - prefilled - transfer - moved - queue
              - joined - decode - ended - api - last token

If it stays on one replica, ``moved`` and ``joined`` equal ``prefilled``. ``prefilled`` and
``ended`` are the ends of the steps that gave the first and the last token; the client has a token
later, by the latency of the API. A run without steps, as of a load test, has only the stamps of the
client.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from servetwin.sim.explain.step_rows import SLACK_S, StepRows
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.step_time import ApiLatency, FloatArray

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
