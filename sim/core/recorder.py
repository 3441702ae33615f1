"""The record of a simulation: stamps of requests and rows of steps, in columns."""

from array import array
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Listed
from dataclasses import astuple
from itertools import repeat
from math import inf
from struct import Struct
from typing import Any

import numpy as np

from servetwin.policies.batch import Batch
from servetwin.policies.drafted_decodes import DraftedDecodes
from servetwin.policies.protocols import KVUsage, Refusal
from servetwin.policies.sequence import Sequence
from servetwin.policies.step_record import StepRecord
from servetwin.sim.records.columns import AnyArray, Columns, rows_of
from servetwin.sim.records.metrics import MEANINGS, REQUEST_COLUMNS, STATUSES, latencies
from servetwin.sim.step_times.step_time import ApiLatency
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace, column

# The columns of ``steps.parquet``, one row per run of equal steps.
STEP_MEANINGS = MEANINGS["steps"]
STEP_COLUMNS = tuple(STEP_MEANINGS)
_LONG = {"steps", "decode_context_tokens", "prefill_pairs", "free_kv_tokens"}
# ``struct`` codes: d a float of 8 bytes, q and i whole numbers of 8 and 4.
_STEP_TYPES = {n: "d" if n.endswith("_s") else "q" if n in _LONG else "i" for n in STEP_COLUMNS}
USAGE_COLUMNS = KVUsage.__match_args__

STEP_ROW = np.dtype(list(_STEP_TYPES.items()))
# Return one row of ``STEP_COLUMNS``, a run of equal steps, as bytes.
pack_step = Struct("=" + "".join(_STEP_TYPES.values())).pack
# The columns of replicas number them from 0 in 4 bytes.
MOST_REPLICAS = 1 << 31
_BLOCK = 4096
_NAN = float("nan")
_CANCELLED = STATUSES.index("cancelled")
_FAILED = STATUSES.index("failed")
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
        # Compiled, ``api != ApiLatency()`` would ask whether it is the same object.
        self.api = api if api and any(astuple(api)) else None
        self.keep_records = keep_records
        self.keep_usage = keep_usage
        self.keeps_more = keep_records or keep_usage
        self.records: list[StepRecord] = []
        self._sent: list[Request] = []
        self.requests: Listed[Request] = self._sent
        # The tokens of reasoning of each answer, by the row of a request that reasons.
        self.hidden: dict[int, int] = {}
        # By row, when the client had the first token behind the reasoning.
        self.visible_s: dict[int, float] = {}
        self.errors: dict[int, str] = {}
        # Rows below 0, at the ends of the columns, are in no table: of further copies of requests.
        self._spares = 0
        # By row, the copy that its client has the answer of, if not the first.
        self.copies: dict[int, int] = {}
        # Copies of which ``on_token`` is to be told when they have their first token.
        self.awaited: set[int] = set()
        self.on_token: Callable[[int], None] = self.awaited.discard
        # By row, why there is no whole answer, and when the client left.
        self._failures: dict[int, tuple[str, float]] = {}
        self.pauses: list[list[float]] = []
        self.handovers: list[list[float]] = []
        self._paused: dict[int, list[float]] = {}
        self._stamps = [array("d") for _ in range(5)]
        self._scheduled_s, self._arrived_s, self._admitted_s, self._first_s, self._last_s = (
            self._stamps  # NaN: not yet, but arrived when it was sent
        )
        self._status = array("b")
        self._counts = [array("l") for _ in range(3)]
        self._output_tokens, self._cached_tokens, self._preemptions = self._counts
        self._replica = array("i")
        # Rows of ``pack_step``.
        self.steps = bytearray()
        self._usage = array("l")

    def scheduled(self, request: Request, scheduled_s: float) -> int:
        """Record that a request is sent; return its row."""
        row = len(self._sent)
        if row == len(self._status) - self._spares:
            self._lengthen(_BLOCK)
        self._sent.append(request)
        if request.reasoning_tokens:
            self.hidden[row] = request.reasoning_tokens
        self._scheduled_s[row] = scheduled_s
        return row

    def copy(self, row: int) -> int:
        """Return a row below 0 for another copy of a request."""
        self._lengthen(1)
        self._spares += 1
        if row in self.hidden:
            self.hidden[-self._spares] = self.hidden[row]
        return -self._spares

    def begin(self, requests: Iterable[Request]) -> Listed[Request]:
        """Record that all of these are sent, in this order and at their arrivals; return them."""
        if isinstance(requests, Trace):
            requests = requests.requests
        self.requests = requests if isinstance(requests, Listed) else list(requests)
        hidden = enumerate(column(self.requests, "reasoning_tokens").tolist())
        self.hidden = {row: tokens for row, tokens in hidden if tokens}
        self._lengthen(len(self.requests))
        arrivals_s = np.asarray(column(self.requests, "arrival_s"), float)
        self._scheduled_s[:] = array("d", arrivals_s.tobytes())
        return self.requests

    def arrived(self, seq: Sequence, replica: int) -> None:
        """Record that a request arrived at a replica."""
        place = seq.number
        self._arrived_s[place] = seq.arrival_s
        if replica:
            self._replica[place] = replica

    def refused(self, seq: Sequence, refusal: Refusal) -> None:
        """Record that a request was refused, on arrival or later."""
        self._status[seq.number] = _REFUSED
        self.errors[seq.number] = f"{refusal.kind}: {refusal.reason}"

    def failed(self, row: int, error: str, left_s: float = inf) -> None:
        """Record that a request has no whole answer; what comes after ``left_s`` is in vain."""
        self._failures[row] = error, left_s

    def first_token_s(self, row: int) -> float:
        """Return when a client had the first token; NaN without one."""
        return self._first_s[row]

    def sent_s(self, row: int) -> float:
        """Return when a request was sent."""
        return self._scheduled_s[row]

    def unused(self, replica: int) -> None:
        """Forget the use of the KV memory at the beginning of a row that does not come."""
        width = 1 + len(USAGE_COLUMNS)
        starts = range(len(self._usage) - width, -1, -width)
        last = next(start for start in starts if self._usage[start] == replica)
        del self._usage[last : last + width]

    def used(self, usage: KVUsage, replica: int) -> None:
        """Record the use of the KV memory of a replica at the beginning of its next row."""
        self._usage.append(replica)
        self._usage.extend(getattr(usage, name) for name in USAGE_COLUMNS)

    def prompts_ran(self, batch: Batch, started_s: float, received_s: float) -> None:
        """Record the first steps of prompts in a batch that ran, and when clients have the tokens.

        Only the first token of a request has a stamp.
        """
        admitted_s, first_s = self._admitted_s, self._first_s
        paused = self._paused
        prompt_token = batch.prompt_token
        for seq, _, _, yields_token, _ in batch.chunks:
            place = seq.number
            stamp_s = admitted_s[place]
            if stamp_s != stamp_s:  # NaN: it had not been admitted
                admitted_s[place] = started_s
            elif paused and place in paused:
                paused.pop(place).append(started_s)
            if yields_token and prompt_token:
                stamp_s = first_s[place]
                if stamp_s != stamp_s:  # NaN: none was out
                    first_s[place] = received_s
                    if place in self.awaited:
                        self.on_token(place)

    def ended(self, finished: list[Sequence], received_s: float) -> None:
        """Record requests that have ended, and when clients have their last tokens."""
        for seq in finished:
            place = seq.number
            self._last_s[place] = received_s
            self._status[place] = _FINISHED
            self._output_tokens[place] = seq.base_generated_tokens * seq.samples
            if seq.cached_tokens:
                self._cached_tokens[place] = seq.cached_tokens
            if seq.preemptions:
                self._preemptions[place] = seq.preemptions

    def blocks_ran(self, batch: Batch, received_s: float) -> None:
        """Record first tokens that come with the last one of their block."""
        first_s = self._first_s
        group = batch.lockstep
        for seq in group.began if isinstance(group, DraftedDecodes) else ():
            place = seq.number
            if first_s[place] != first_s[place]:
                first_s[place] = received_s
                if place in self.awaited:
                    self.on_token(place)

    def handed_over(self, seq: Sequence, replica: int, prefill_end_s: float) -> None:
        """Record that the keys and values of a prompt arrived at the replica that decodes it."""
        self._replica[seq.number] = replica
        handover = self._paused[seq.number] = [seq.number, prefill_end_s, seq.arrival_s]
        self.handovers.append(handover)

    def last_token_s(self, row: int) -> float:
        """Return when the client had the last token of a finished request."""
        return self._last_s[row]

    def requests_table(self) -> Any:
        """Return ``REQUEST_COLUMNS`` of the requests, in order of arrival, for a run.

        Where requests reason, also ``REASONING_COLUMNS`` (``sim.records.metrics``).
        """
        if self._spares:
            self._take_copies()
        self._fail()
        requests, errors = self.requests, self.errors
        rows = len(requests)
        scheduled_s, known_s = self._column(self._scheduled_s), self._column(self._arrived_s)
        arrived_s = np.where(np.isnan(known_s), scheduled_s, known_s)
        columns: Columns = {
            "request_id": column(requests, "request_id"),
            "status": np.array(STATUSES, dtype=object)[self._column(self._status)],
            "scheduled_s": scheduled_s,
            "sent_s": scheduled_s,
            "first_token_s": self._column(self._first_s),
            "last_token_s": self._column(self._last_s),
            "prompt_tokens": column(requests, "prompt_tokens"),
            "output_tokens": self._column(self._output_tokens),
            "cached_tokens": self._column(self._cached_tokens),
            "preemptions": self._column(self._preemptions),
            "queue_s": self._column(self._admitted_s) - arrived_s,
            "replica": self._column(self._replica).astype(int),
            "error": np.fromiter(map(errors.get, range(rows), repeat("")), object, rows),
        }
        samples = column(requests, "samples")
        if self.hidden:
            hidden = samples * [self.hidden.get(row, 0) for row in range(rows)]
            visible_s = [self.visible_s.get(row, _NAN) for row in range(rows)]
            columns["reasoning_tokens"] = np.minimum(hidden, columns["output_tokens"])
            columns["first_output_s"] = np.where(hidden > 0, visible_s, columns["first_token_s"])
        columns |= latencies(columns, samples)
        names = dict.fromkeys((*REQUEST_COLUMNS, *columns))
        return {name: columns[name] for name in names}

    def _take_copies(self) -> None:
        """Let requests have what became of the copies that their clients have."""
        columns: list[array[Any]] = [*self._stamps[1:], *self._counts, self._status, self._replica]
        for row, copy in self.copies.items():
            for values in columns:
                values[row] = values[copy]
            self.errors[row] = self.errors.get(copy, "")
            self.visible_s[row] = self.visible_s.get(copy, _NAN)
        rows = {copy: row for row, copy in self.copies.items()}
        self.pauses = [
            [rows.get(int(number), number), *stamps]
            for number, *stamps in self.pauses
            if number in rows or (number >= 0 and number not in self.copies)
        ]

    def _fail(self) -> None:
        """Let the failed requests have what their clients have."""
        for row, (error, left_s) in self._failures.items():
            self.errors[row], self._status[row], self._last_s[row] = error, _FAILED, _NAN
            for counts in self._counts:
                counts[row] = 0
            if self._first_s[row] > left_s:
                self._first_s[row] = _NAN
            if self.visible_s.get(row, 0.0) > left_s:
                del self.visible_s[row]

    def steps_table(self) -> Any:
        """Return ``STEP_COLUMNS`` of runs of equal steps, and ``USAGE_COLUMNS`` if kept."""
        table = np.frombuffer(self.steps, dtype=STEP_ROW)
        columns: Columns = {name: table[name] for name in STEP_COLUMNS}
        if self.keep_usage:  # in the order of beginnings, which is that of ends on each replica
            usage = np.array(self._usage, int).reshape(-1, 1 + len(USAGE_COLUMNS))
            rows = np.argsort(table["replica"], kind="stable")
            begun = np.argsort(usage[:, 0], kind="stable")
            ordered = usage[begun[np.argsort(rows)], 1:].T
            columns |= zip(USAGE_COLUMNS, ordered, strict=True)
        if (np.diff(table["end_s"]) >= 0).all():
            return columns
        return rows_of(columns, np.lexsort((table["replica"], table["end_s"])))

    def _column(self, values: "array[Any]") -> AnyArray:
        """Return the values of the requests, not those of rows that wait for more."""
        return np.asarray(values)[: len(self.requests)]

    def _lengthen(self, rows: int) -> None:
        """Add rows for more requests, to which nothing has happened."""
        end = len(self._status) - self._spares
        for stamps in self._stamps:
            stamps[end:end] = array("d", (_NAN,)) * rows
        for counts in self._counts:
            counts[end:end] = array("l", (0,)) * rows
        self._status[end:end] = array("b", (_CANCELLED,)) * rows
        self._replica[end:end] = array("i", (0,)) * rows

    def moved(self, batch: Batch, now_s: float) -> None:
        """Record the sequences that a decision preempted or resumed."""
        for seq in batch.resumed:  # first: some are preempted again in the same decision
            if seq.number in self._paused:
                self._paused.pop(seq.number).append(now_s)
        for seq in batch.preempted:
            pause = self._paused[seq.number] = [seq.number, now_s]
            self.pauses.append(pause)
