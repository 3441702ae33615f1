"""The record of a simulation: stamps of requests and rows of steps, in columns."""

from array import array
from collections.abc import Callable
from struct import Struct
from typing import Any

import numpy as np
import pandas as pd

from servetwin.policies.batch import Batch
from servetwin.policies.drafted_decodes import DraftedDecodes
from servetwin.policies.protocols import KVUsage, Refusal
from servetwin.policies.sequence import Sequence
from servetwin.policies.step_record import StepRecord
from servetwin.sim.records.metrics import MEANINGS, REQUEST_COLUMNS, STATUSES, Columns, latencies
from servetwin.sim.step_times.step_time import ApiLatency, FloatArray, to_ticks
from servetwin.workloads.request import Request

STEP_MEANINGS = MEANINGS["steps"]
"""The columns of ``steps.parquet``, one row per run of equal steps."""
STEP_COLUMNS = tuple(STEP_MEANINGS)
_LONG = {"steps", "decode_context_tokens", "prefill_pairs", "free_kv_tokens"}
_STEP_TYPES = {n: "d" if n.endswith("_s") else "q" if n in _LONG else "i" for n in STEP_COLUMNS}
"""``struct`` codes: d a float of 8 bytes, q and i whole numbers of 8 and 4."""
USAGE_COLUMNS = KVUsage.__match_args__

STEP_ROW = np.dtype(list(_STEP_TYPES.items()))
pack_step = Struct("=" + "".join(_STEP_TYPES.values())).pack
"""Return one row of ``STEP_COLUMNS``, a run of equal steps, as bytes."""
MOST_REPLICAS = 1 << 31
"""The columns of replicas number them from 0 in 4 bytes."""
_BLOCK = 4096
_NAN = float("nan")
_CANCELLED = STATUSES.index("cancelled")
_FINISHED = STATUSES.index("finished")
_REFUSED = STATUSES.index("refused")


class Recorder:
    """Collects stamps of requests and rows of steps; ``keep_records`` adds a record of every step.

    ``pauses`` has [request row, preempted_s, resumed_s] for every preemption, ``handovers`` has
    [request row, prefill_end_s, transfer_end_s, decode_start_s] for every prompt whose keys and
    values moved to another server (without the last if the request was refused there).
    """

    def __init__(
        self, api: ApiLatency | None = None, *, keep_records: bool = False, keep_usage: bool = False
    ) -> None:
        self.api = api if api and api != ApiLatency() else None
        self.keep_records = keep_records
        self.keep_usage = keep_usage
        self.keeps_more = keep_records or keep_usage
        self.records: list[StepRecord] = []
        self.requests: list[Request] = []
        self.errors: dict[int, str] = {}
        self.pauses: list[list[float]] = []
        self.handovers: list[list[float]] = []
        self._paused: dict[int, list[float]] = {}
        self._rows = 0
        self._room = 0
        """The first row for which the columns have no place yet."""
        self._handed_on = 0
        """Rows that are no longer here: ``sim.core.recorder``."""
        self.settle: Callable[[int], None] | None = None
        """Simulates what happens before a tick, where replicas are simulated late."""
        self._stamps = [array("d") for _ in range(5)]
        self._scheduled_s, self._arrived_s, self._admitted_s, self._first_s, self._last_s = (
            self._stamps  # NaN: scheduled at ``arrival_s``, arrived when it was sent
        )
        self._status = array("b")
        self._counts = [array("l") for _ in range(3)]
        self._output_tokens, self._cached_tokens, self._preemptions = self._counts
        self._replica = array("i")
        self.steps = bytearray()
        """Rows of ``pack_step``."""
        self._usage = array("l")

    def scheduled(self, request: Request, scheduled_s: float) -> int:
        """Record that a request is sent; return its row."""
        row = self._rows
        if row == self._room:
            self._lengthen()
        self._rows = row + 1
        self.requests.append(request)
        if scheduled_s != request.arrival_s:
            self._scheduled_s[row - self._handed_on] = scheduled_s
        return row

    def arrived(self, seq: Sequence, replica: int) -> None:
        """Record that a request arrived at a replica."""
        place = seq.number - self._handed_on
        self._arrived_s[place] = seq.arrival_s
        if replica:
            self._replica[place] = replica

    def refused(self, seq: Sequence, refusal: Refusal) -> None:
        """Record that a request was refused, on arrival or later."""
        self._status[seq.number - self._handed_on] = _REFUSED
        self.errors[seq.number] = f"{refusal.kind}: {refusal.reason}"

    def used(self, usage: KVUsage, replica: int) -> None:
        """Record the use of the KV memory of a replica at the beginning of its next row."""
        self._usage.append(replica)
        self._usage.extend(getattr(usage, name) for name in USAGE_COLUMNS)

    def prompts_ran(self, batch: Batch, started_s: float, received_s: float) -> None:
        """Record the first steps of prompts in a batch that ran, and when clients have the tokens.

        Only the first token of a request has a stamp.
        """
        admitted_s, first_s = self._admitted_s, self._first_s
        paused, handed_on = self._paused, self._handed_on
        prompt_token = batch.prompt_token
        for seq, _, _, yields_token, _ in batch.chunks:
            number = seq.number
            place = number - handed_on
            stamp_s = admitted_s[place]
            if stamp_s != stamp_s:  # NaN: it had not been admitted
                admitted_s[place] = started_s
            elif paused and number in paused:
                paused.pop(number).append(started_s)
            if yields_token and prompt_token:
                stamp_s = first_s[place]
                if stamp_s != stamp_s:  # NaN: none was out
                    first_s[place] = received_s

    def ended(self, finished: list[Sequence], received_s: float) -> None:
        """Record requests that have ended, and when clients have their last tokens."""
        handed_on = self._handed_on
        for seq in finished:
            place = seq.number - handed_on
            self._last_s[place] = received_s
            self._status[place] = _FINISHED
            self._output_tokens[place] = seq.base_generated_tokens * seq.samples
            if seq.cached_tokens:
                self._cached_tokens[place] = seq.cached_tokens
            if seq.preemptions:
                self._preemptions[place] = seq.preemptions

    def blocks_ran(self, batch: Batch, received_s: float) -> None:
        """Record first tokens that come with the last one of their block."""
        first_s, handed_on = self._first_s, self._handed_on
        group = batch.lockstep
        for seq in group.began if isinstance(group, DraftedDecodes) else ():
            place = seq.number - handed_on
            if first_s[place] != first_s[place]:
                first_s[place] = received_s

    def handed_over(self, seq: Sequence, replica: int, prefill_end_s: float) -> None:
        """Record that the keys and values of a prompt arrived at the replica that decodes it."""
        self._replica[seq.number - self._handed_on] = replica
        handover = self._paused[seq.number] = [seq.number, prefill_end_s, seq.arrival_s]
        self.handovers.append(handover)

    def request(self, row: int) -> Request:
        """Return the request of a row."""
        return self.requests[row - self._handed_on]

    def last_token_s(self, row: int) -> float:
        """Return when the client had the last token of a finished request."""
        return self._last_s[row - self._handed_on]

    def requests_frame(self) -> pd.DataFrame:
        """Return one row per request, in order of arrival (``REQUEST_COLUMNS``)."""
        return pd.DataFrame(self.request_columns(len(self.requests)))

    def request_columns(self, rows: int) -> Columns:
        """Return ``REQUEST_COLUMNS`` of the first ``rows`` requests that are here."""
        requests, handed_on, errors = self.requests[:rows], self._handed_on, self.errors
        stamps_s = np.array([request.arrival_s for request in requests])
        scheduled_s = _filled(self._scheduled_s[:rows], stamps_s)
        arrived_s = _filled(self._arrived_s[:rows], scheduled_s)
        columns: Columns = {
            "request_id": [request.request_id for request in requests],
            "status": np.array(STATUSES, dtype=object)[np.array(self._status[:rows], int)],
            "scheduled_s": scheduled_s,
            "sent_s": scheduled_s,
            "first_token_s": np.array(self._first_s[:rows]),
            "last_token_s": np.array(self._last_s[:rows]),
            "prompt_tokens": np.array([r.prompt_tokens for r in requests], int),
            "output_tokens": np.array(self._output_tokens[:rows]),
            "cached_tokens": np.array(self._cached_tokens[:rows]),
            "preemptions": np.array(self._preemptions[:rows]),
            "queue_s": np.array(self._admitted_s[:rows]) - arrived_s,
            "replica": np.array(self._replica[:rows], int),
            "error": [errors.get(handed_on + row, "") for row in range(rows)],
        }
        samples = np.array([request.samples for request in requests], int)
        columns |= latencies(columns, samples)
        return {name: columns[name] for name in REQUEST_COLUMNS}

    def steps_frame(self) -> pd.DataFrame:
        """Return one row per run of equal steps: ``STEP_COLUMNS``, ``USAGE_COLUMNS`` if kept."""
        table = np.frombuffer(bytes(self.steps), dtype=STEP_ROW)
        frame = pd.DataFrame({name: table[name] for name in STEP_COLUMNS})
        if self.keep_usage:  # in the order of beginnings, which is that of ends on each replica
            usage = np.array(self._usage, int).reshape(-1, 1 + len(USAGE_COLUMNS))
            rows = np.argsort(table["replica"], kind="stable")
            begun = np.argsort(usage[:, 0], kind="stable")
            frame[list(USAGE_COLUMNS)] = usage[begun[np.argsort(rows)], 1:]
        if frame["end_s"].is_monotonic_increasing:
            return frame
        return frame.sort_values(["end_s", "replica"], kind="stable", ignore_index=True)

    def _lengthen(self) -> None:
        """Add rows for more requests, to which nothing has happened."""
        for stamps in self._stamps:
            stamps.extend(array("d", (_NAN,)) * _BLOCK)
        self._room += _BLOCK
        for counts in self._counts:
            counts.extend(array("l", (0,)) * _BLOCK)
        self._status.extend(array("b", (_CANCELLED,)) * _BLOCK)
        self._replica.extend(array("i", (0,)) * _BLOCK)

    def moved(self, batch: Batch, now_s: float) -> None:
        """Record the sequences that a decision preempted or resumed."""
        for seq in batch.resumed:  # first: some are preempted again in the same decision
            if seq.number in self._paused:
                self._paused.pop(seq.number).append(now_s)
        for seq in batch.preempted:
            pause = self._paused[seq.number] = [seq.number, now_s]
            self.pauses.append(pause)


def _filled(stamps_s: "array[float]", otherwise_s: FloatArray) -> FloatArray:
    """Return ``stamps_s`` with ``otherwise_s`` in place of NaN."""
    known_s = np.array(stamps_s)
    return np.where(np.isnan(known_s), otherwise_s, known_s)


FLUSHED_ROWS = 1 << 15
"""So many requests are in memory before some are handed on."""
_UNSETTLED = STATUSES.index("cancelled")

TakeRows = Callable[[str, Any], None]
"""Takes rows of a table, by its name, in their final order, piece by piece.

Requests come as columns, in order of arrival; steps as columns, by the end of
the last one and then by replica; pauses and handovers as stamps, by the row of their request.
"""


class FlushingRecorder(Recorder):
    """Hands rows on to ``take``; its own frames are empty in the end."""

    def __init__(self, take: TakeRows, api: ApiLatency | None = None) -> None:
        super().__init__(api)
        self._take = take
        self._full_at = FLUSHED_ROWS

    def scheduled(self, request: Request, scheduled_s: float) -> int:
        """Record that a request is sent, after what is settled by then; return its row."""
        if self._rows >= self._full_at:
            self._flush(scheduled_s)
        return super().scheduled(request, scheduled_s)

    def requests_frame(self) -> pd.DataFrame:
        """Hand on all that is left; return no rows."""
        self._hand_on_requests(len(self.requests))
        return super().requests_frame()

    def steps_frame(self) -> pd.DataFrame:
        """Hand on all that is left; return no rows."""
        self._hand_on_steps(float("inf"))
        return super().steps_frame()

    def _flush(self, now_s: float) -> None:
        """Hand on what is settled at ``now_s``; all that ends later will be recorded later."""
        if self.settle is not None:
            self.settle(to_ticks(now_s))
        self._hand_on_steps(now_s)
        statuses = np.array(self._status[: len(self.requests)])
        unsettled = np.flatnonzero(statuses == _UNSETTLED)
        self._hand_on_requests(int(unsettled[0]) if len(unsettled) else len(statuses))
        self._full_at = self._rows + max(FLUSHED_ROWS, len(self.requests))

    def _hand_on_requests(self, rows: int) -> None:
        if not rows:
            return
        end = self._handed_on + rows
        self._take("requests", self.request_columns(rows))
        for row in [row for row in self.errors if row < end]:
            del self.errors[row]
        for name, stamps in (("pauses", self.pauses), ("handovers", self.handovers)):
            if stamps:
                self._take(name, sorted(stamp for stamp in stamps if stamp[0] < end))
                stamps[:] = [stamp for stamp in stamps if stamp[0] >= end]
        del self.requests[:rows]
        for stamp_column in self._stamps:
            del stamp_column[:rows]
        for count_column in self._counts:
            del count_column[:rows]
        del self._status[:rows], self._replica[:rows]
        self._handed_on = end

    def _hand_on_steps(self, now_s: float) -> None:
        table = np.frombuffer(bytes(self.steps), dtype=STEP_ROW)
        settled = table["end_s"] < now_s
        done = table[settled]
        done = done[np.lexsort((done["replica"], done["end_s"]))]
        if len(done):
            self._take("steps", {name: done[name] for name in STEP_ROW.names or ()})
        self.steps[:] = table[~settled].tobytes()
