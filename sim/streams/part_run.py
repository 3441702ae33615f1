"""One part of a divided simulation, in a process of its own; its rows go to files."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.streams.partition import Part
from servetwin.sim.streams.streamed_run import simulate_rows
from servetwin.sim.streams.table_sink import Spool, TableSink
from servetwin.workloads.request import Request
from servetwin.workloads.streams.streamed_trace import StreamedTrace


@dataclass(frozen=True, slots=True)
class DividedRun:
    """What all parts share; ``spool`` is a folder that all processes see."""

    trace: StreamedTrace
    scenario: Scenario
    seed: int
    macro: bool
    spool: Path


@dataclass(frozen=True, slots=True)
class PartDone:
    """When the first request of a part arrives, and when the server is empty after the last."""

    first_arrival_s: float
    empty_s: float


def part_folder(spool: Path, part: Part) -> Path:
    """Return where the rows of a part are."""
    share = "" if part.replicas is None else f"-{min(part.replicas)}"
    return spool / f"{part.first}-{part.last}{share}"


def simulate_part(run: DividedRun, part: Part) -> PartDone:
    """Simulate a part and spool its rows."""
    spool = Spool(part_folder(run.spool, part))
    sink = TableSink(spool.write)
    arrivals = _Watched(run.trace.requests(part.first, part.last))
    try:
        last_event_s = simulate_rows(
            arrivals,
            run.scenario,
            sink,
            seed=run.seed,
            macro=run.macro,
            first_row=part.first,
            replicas=part.replicas,
        )
    finally:
        spool.close()
    return PartDone(arrivals.first_s, max(sink.latest_end_s, last_event_s))


class _Watched:
    """Requests on their way, and when the first of them arrives."""

    def __init__(self, requests: Iterator[Request]) -> None:
        self._requests = requests
        self.first_s = float("inf")

    def __iter__(self) -> Iterator[Request]:
        first = next(self._requests)
        self.first_s = first.arrival_s
        return chain([first], self._requests)
