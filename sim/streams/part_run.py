"""One part of a divided simulation, in a process of its own; its rows go to files."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sim.experiments.scenario import Scenario
from sim.step_times.step_time import ApiLatency
from sim.streams.partition import Part
from sim.streams.streamed_run import simulate_rows
from sim.streams.table_sink import Spool, TableSink
from workloads.request import Request
from workloads.streams.streamed_trace import StreamedTrace


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
    arrivals = _Watched(run.trace.requests(part.first, part.last), run.scenario.profile.api.model())
    try:
        simulate_rows(
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
    return PartDone(arrivals.first_s, max(sink.latest_end_s, arrivals.latest_received_s))


class _Watched:
    """Requests on their way, and when the server has received the last of them."""

    def __init__(self, requests: Iterator[Request], api: ApiLatency) -> None:
        self._requests, self._api = requests, api
        self.first_s = float("inf")
        self.latest_received_s = float("-inf")

    def __iter__(self) -> Iterator[Request]:
        api = self._api
        for request in self._requests:
            if self.first_s > request.arrival_s:
                self.first_s = request.arrival_s
            received_s = request.arrival_s + api.request_in_s(request.prompt_tokens)
            if received_s > self.latest_received_s:
                self.latest_received_s = received_s
            yield request
