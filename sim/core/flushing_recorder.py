"""A recorder that hands its rows on as soon as they are settled, so that few are in memory."""

from array import array
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

from servetwin.sim.core.recorder import STEP_ROW, Recorder
from servetwin.sim.records.metrics import STATUSES, Columns
from servetwin.sim.step_times.step_time import ApiLatency
from servetwin.sim.ticks import to_ticks
from servetwin.workloads.request import Request

FLUSHED_ROWS = 1 << 15
"""So many requests are in memory before some are handed on."""
_UNSETTLED = STATUSES.index("cancelled")
_ELSEWHERE = len(STATUSES)


class RowSink(Protocol):
    """Takes the rows of a run in their final order, piece by piece.

    Requests come in order of arrival, steps by the end of the last one and then by replica, pauses
    and handovers by the row of their request.
    """

    def add_requests(self, columns: Columns) -> None:
        """Take requests, with their ``row``."""

    def add_steps(self, columns: Columns) -> None:
        """Take rows of steps."""

    def add_pauses(self, stamps: list[list[float]]) -> None:
        """Take preemptions."""

    def add_handovers(self, stamps: list[list[float]]) -> None:
        """Take moves between servers."""


class FlushingRecorder(Recorder):
    """Hands rows on to a sink; its own frames are empty in the end.

    ``first_row`` is the row of the first request. Requests that went ``elsewhere`` are left out.
    """

    def __init__(self, sink: RowSink, api: ApiLatency | None = None, first_row: int = 0) -> None:
        super().__init__(api)
        self.sink = sink
        self._rows = self._room = self._handed_on = first_row
        self._full_at = first_row + FLUSHED_ROWS

    def scheduled(self, request: Request, scheduled_s: float) -> int:
        """Record that a request is sent, after what is settled by then; return its row."""
        if self._rows >= self._full_at:
            self._flush(scheduled_s)
        return super().scheduled(request, scheduled_s)

    def elsewhere(self, row: int) -> None:
        """Record that a request went to a replica that is simulated in another process."""
        self._status[row - self._handed_on] = _ELSEWHERE

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
        statuses = np.array(self._status[:rows])
        here = statuses != _ELSEWHERE
        self._status[:rows] = array("b", np.where(here, statuses, 0).tobytes())
        columns = self.request_columns(rows)
        first, end = self._handed_on, self._handed_on + rows
        columns["row"] = np.arange(first, end)
        if not here.all():
            columns = {name: _chosen(values, here) for name, values in columns.items()}
        self.sink.add_requests(columns)
        for row in [row for row in self.errors if row < end]:
            del self.errors[row]
        for stamps, add in (
            (self.pauses, self.sink.add_pauses),
            (self.handovers, self.sink.add_handovers),
        ):
            if stamps:
                add(sorted(stamp for stamp in stamps if stamp[0] < end))
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
            self.sink.add_steps({name: done[name] for name in STEP_ROW.names or ()})
        self.steps[:] = table[~settled].tobytes()


def _chosen(values: Any, here: npt.NDArray[np.bool_]) -> Any:
    if isinstance(values, list):
        return [value for value, chosen in zip(values, here, strict=True) if chosen]
    return values[here]
