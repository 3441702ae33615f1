"""Options of a trace that is too long for the memory: read as it is simulated, in parts."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from typer import Option

from servetwin.app.scenario.options.common import Ray
from servetwin.app.scenario.options.trace import TraceOptions
from servetwin.workloads.errors import ServetwinError, TraceError

if TYPE_CHECKING:
    from servetwin.sim.long_runs.partitioned_run import DividedRun, Part, PartDone
    from servetwin.workloads.streams.streamed_trace import StreamedTrace

_READ_WHOLE = ("spread_ties", "prompt_scale", "output_scale", "tokenizer", "estimate_cv")


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Whether the trace is streamed, and the parts and processes of its simulation."""

    PANEL: ClassVar = "Long traces"

    stream: Annotated[bool, Option("--stream")] = False
    """Read the trace as it is simulated; quantiles are sketched, memory stays flat."""
    partitions: Annotated[int | None, Option(min=1, max=100_000)] = None
    """Simulate a stream in up to so many parts, cut by time or by replicas."""
    processes: Annotated[int | None, Option(min=1, max=512)] = None
    """Parts side by side; else one per core."""
    ray: Ray = None

    @property
    def wanted(self) -> bool:
        """Whether the trace is to be streamed. Raises ``ServetwinError`` for half of a choice."""
        for name in ("processes", "ray"):
            if getattr(self, name) is not None and self.partitions is None:
                raise ServetwinError(f"--{name}: is for the parts of a stream; give --partitions")
        return self.stream or self.partitions is not None

    def simulated(
        self, run: "DividedRun", parts: "Sequence[Part]"
    ) -> "Iterator[tuple[int, PartDone]]":
        """Yield the place and the end of each part as it is simulated; raises ``LostItems``."""
        from servetwin.sim.experiments.parallel_map import map_on_processes
        from servetwin.sim.experiments.ray_cluster import map_on_ray
        from servetwin.sim.long_runs.partitioned_run import simulate_part

        def called(place: int) -> str:
            return parts[place].name

        if self.ray is not None:
            return map_on_ray(simulate_part, run, parts, self.ray or None, called)
        workers = self.processes or os.cpu_count() or 1
        return map_on_processes(simulate_part, run, parts, workers, called)

    def open(self, options: TraceOptions, closed_loop: bool | None) -> "StreamedTrace":
        """Read the trace once. Raises ``TraceError`` for what a stream cannot do."""
        from servetwin.workloads.streams.streamed_trace import Chosen, StreamedTrace
        from servetwin.workloads.streams.trace_file import TraceFile

        path = _require_possible(options, closed_loop)
        file = TraceFile(path, options.reader, options.max_bad_rows)
        trace = StreamedTrace.open(file, Chosen(options.start_s, options.end_s, options.limit))
        if trace.found.followers and closed_loop is None:
            raise TraceError(
                f"{path}: has requests that follow an answer, which a stream does not; give "
                "--open-loop, or leave --stream out"
            )
        if options.rate_scale is not None:
            trace = trace.scaled(options.rate_scale)
        return trace if options.rate_per_s is None else trace.at_rate(options.rate_per_s)


def _require_possible(options: TraceOptions, closed_loop: bool | None) -> Path:
    if options.path is None:
        raise TraceError("--stream: wants TRACE, a file")
    if closed_loop:
        raise TraceError("--stream: --closed-loop needs the whole trace; leave --stream out")
    if options.rate_scale is not None and options.rate_per_s is not None:
        raise TraceError("--rate and --rate-scale exclude each other; give one")
    if options.columns is not None:
        raise TraceError(
            "--map: a table is read whole; leave --stream out, or let `workload convert` write a "
            "trace of it"
        )
    defaults = TraceOptions()
    for name in _READ_WHOLE:
        if getattr(options, name) != getattr(defaults, name):
            option = f"--{name.replace('_', '-')}"
            raise TraceError(f"{option} needs the whole trace; leave --stream out")
    return options.path
