"""A trace that is never in memory as a whole: each reading goes through the file again."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from servetwin.workloads.errors import TraceError
from servetwin.workloads.generators.arrivals import check_positive
from servetwin.workloads.reading import tie_notes
from servetwin.workloads.request import Request
from servetwin.workloads.rows import counted
from servetwin.workloads.streams.blocks import Floats, Stamp, requests_in
from servetwin.workloads.streams.trace_file import OpenTrace, TraceFile
from servetwin.workloads.transform import limit_note, window_note


@dataclass(frozen=True, slots=True)
class Chosen:
    """The requests that are taken from a file: those in a window, up to a limit."""

    start_s: float | None = None
    end_s: float | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        _ = self.notes  # raises ``TraceError`` where nothing can be chosen

    @property
    def _end_s(self) -> float:
        return float("inf") if self.end_s is None else self.end_s

    def of(self, block: pd.DataFrame, origin: Stamp) -> tuple[pd.DataFrame, Floats, bool]:
        """Return the requests in the window, their arrivals in it, and whether it is over."""
        answered = block[~block["failed"]] if block["failed"].any() else block
        since = answered["stamp"].to_numpy() - origin
        arrivals_s = np.asarray(since / 1e9 if since.dtype == np.int64 else since, np.float64)
        over = bool(len(arrivals_s) and arrivals_s[-1] >= self._end_s)
        if self.start_s is not None or over:
            inside = (arrivals_s >= (self.start_s or 0.0)) & (arrivals_s < self._end_s)
            answered, arrivals_s = answered[inside], arrivals_s[inside]
        return answered, arrivals_s - (self.start_s or 0.0), over

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes on what was left out."""
        notes = []
        if self.start_s is not None or self.end_s is not None:
            notes.append(window_note(self.start_s or 0.0, self._end_s))
        if self.limit is not None:
            notes.append(limit_note(self.limit))
        return tuple(notes)


ALL = Chosen()


@dataclass(slots=True)
class Survey:
    """The facts of one reading of the chosen requests."""

    source: str
    origin: Stamp = 0
    requests: int = 0
    first_s: float = 0.0
    last_s: float = 0.0
    longest_tokens: int = 0
    failed: int = 0
    ties: int = 0
    followers: int = 0
    notes: tuple[str, ...] = ()

    def add(self, block: pd.DataFrame, arrivals_s: Floats) -> None:
        """Add the chosen requests of the next block."""
        if not len(block):
            return
        if not self.requests:
            self.first_s = float(arrivals_s[0])
        elif arrivals_s[0] == self.last_s:
            self.ties += 1
        self.ties += int((np.diff(arrivals_s) == 0).sum())
        self.requests += len(block)
        tokens = block["prompt_tokens"] + block["output_tokens"]
        self.last_s = float(arrivals_s[-1])
        self.longest_tokens = max(self.longest_tokens, int(tokens.max()))
        if "delay_s" in block and "parent_ids" in block:
            pairs = zip(block["delay_s"], block["parent_ids"], strict=True)
            self.followers += sum(delay is not None and bool(parents) for delay, parents in pairs)

    def finished(self, reading: OpenTrace, chosen: Chosen) -> "Survey":
        """Return the survey with the notes that ``workloads.reading.read_trace`` makes."""
        notes = list(reading.notes)
        if self.failed:
            notes.append(f"{counted(self.failed, 'failed row')} left out")
        notes += tie_notes(self.ties, self.requests)
        return replace(self, notes=(*notes, *reading.bad_notes, *chosen.notes))


def take_survey(file: TraceFile, chosen: Chosen) -> Survey:
    """Read the chosen requests once. Raises ``TraceError`` for bad rows, or without requests."""
    reading = file.opened()
    result, begun = Survey(reading.format.source), not reading.format.begins_at_zero
    for block in reading.blocks():
        if not begun and len(block):
            result.origin, begun = block["stamp"].iloc[0].item(), True
        result.failed += int(block["failed"].sum())
        requests, arrivals_s, over = chosen.of(block, result.origin)
        if chosen.limit is not None:
            left = chosen.limit - result.requests
            over = over or len(requests) >= left
            requests, arrivals_s = requests.iloc[:left], arrivals_s[:left]
        result.add(requests, arrivals_s)
        if over:
            break
    if not result.requests:
        notes = result.finished(reading, ALL).notes
        raise TraceError("; ".join([f"{file.path}:1: no requests", *notes]))
    return result.finished(reading, chosen)


@dataclass(frozen=True, slots=True)
class StreamedTrace:
    """The chosen requests of a file in order of arrival, at ``rate_factor`` times their rate."""

    file: TraceFile
    chosen: Chosen
    survey: Survey
    rate_factor: float | None = None

    @classmethod
    def open(cls, file: TraceFile, chosen: Chosen = ALL) -> "StreamedTrace":
        """Read the file once. Raises ``TraceError``."""
        return cls(file, chosen, take_survey(file, chosen))

    def __len__(self) -> int:
        return self.survey.requests

    def __iter__(self) -> Iterator[Request]:
        """Yield the requests; raises ``TraceError`` where the file no longer has them."""
        left = len(self)
        for block in self.file.opened().blocks():
            chosen, arrivals_s, _ = self.chosen.of(block, self.survey.origin)
            yield from requests_in(chosen.iloc[:left], self._scaled(arrivals_s[:left]))
            left -= len(chosen)
            if left <= 0:
                return
        raise TraceError(f"{self.file.path}: has changed while it was read; begin again")

    @property
    def source(self) -> str:
        """Where the requests come from."""
        return self.survey.source

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes on changes to the rows."""
        scaled = () if self.rate_factor is None else (f"rate scaled by {self.rate_factor:g}",)
        return (*self.survey.notes, *scaled)

    @property
    def longest_tokens(self) -> int:
        """The longest context that a request reaches."""
        return self.survey.longest_tokens

    def scaled(self, factor: float) -> "StreamedTrace":
        """Return the trace at ``factor`` times its rate; the first arrival moves to 0."""
        check_positive("rate factor", factor)
        return replace(self, rate_factor=factor)

    def at_rate(self, rate_per_s: float) -> "StreamedTrace":
        """Return the trace at a mean rate. Raises ``TraceError`` where it has no rate."""
        check_positive("rate", rate_per_s)
        span_s = self.survey.last_s - self.survey.first_s
        if not span_s > 0 or len(self) < 2:
            raise TraceError("a trace whose requests all arrive at once has no rate to scale")
        return self.scaled(rate_per_s / ((len(self) - 1) / span_s))

    def _scaled(self, arrivals_s: Floats) -> Floats:
        if self.rate_factor is None:
            return arrivals_s
        return (arrivals_s - self.survey.first_s) / self.rate_factor
