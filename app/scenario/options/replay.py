"""Options of a replay; and of a trace that is too long for the memory, simulated in parts."""

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from typer import Option

from servetwin.app.lasting_imports import lasting_imports
from servetwin.app.scenario.options.common import KEEP, Json, Overwriting, Ray, RunFolder
from servetwin.app.scenario.options.policy import ScenarioOptions
from servetwin.app.scenario.options.trace import TraceOptions
from servetwin.workloads.errors import ServetwinError, TraceError
from servetwin.workloads.files import require_there

if TYPE_CHECKING:
    from servetwin.app.scenario.replay_scenario import ReplayScenario
    from servetwin.sim.long_runs.partitioned_run import DividedRun, Part, PartDone
    from servetwin.sim.records.run_claim import RunClaim
    from servetwin.workloads.streams.streamed_trace import StreamedTrace

STREAMED = (
    "reader", "max_bad_rows", "start_s", "end_s", "limit", "rate_scale", "rate_per_s",
)  # fmt: skip
"""What a stream takes of ``TraceOptions``; the others need the whole trace."""
KEPT = ("scenario", "seed", "full_check", "out", "overwriting", "as_json")
"""The options of a replay that hold for a comparison too."""


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """A scenario file below the options, the seed, and where the run goes."""

    scenario: Annotated[Path | None, Option(metavar="FILE")] = None
    """What the dashboard saved; TRACE and options win."""
    seed: Annotated[int | None, Option(min=0, max=2**63 - 1)] = None
    """Seed of every random stream: the scenario's, or 0."""
    step_by_step: Annotated[bool, Option("--step-by-step")] = False
    """One event per step: slow, the same result."""
    full_check: Annotated[bool, Option("--check")] = False
    """Check every sequence and all KV memory at each step: slow."""
    out: RunFolder = None
    overwriting: Overwriting = KEEP
    as_json: Json = False

    def over_file(self, options: ScenarioOptions, trace: Path | None) -> "ReplayScenario":
        """Return the scenario file under the options; raises ``ServetwinError`` without TRACE."""
        if trace is not None:
            require_there(trace)
        with lasting_imports():
            from servetwin.app.scenario.files.scenario_file import read_scenario
            from servetwin.app.scenario.replay_scenario import ReplayScenario

        file = read_scenario(self.scenario) if self.scenario else None
        seed = self.seed if self.seed is not None else file.seed if file else 0
        return ReplayScenario(file, options.with_trace(trace, seed))

    def claimed(self) -> "AbstractContextManager[RunClaim | None]":
        """Claim the run folder before the work begins, where one is wanted."""
        return self.overwriting.claimed_if_asked(self.out)


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The parts of a streamed simulation, and where they are simulated."""

    PANEL: ClassVar = "Long traces"

    partitions: Annotated[int | None, Option(min=1, max=100_000)] = None
    """Simulate a stream in up to so many parts, cut by time or by replicas."""
    processes: Annotated[int | None, Option(min=1, max=512)] = None
    """Parts side by side; else one per core."""
    ray: Ray = None

    def check(self) -> None:
        """Raise ``ServetwinError`` for an option of the parts without any."""
        for name in ("processes", "ray"):
            if getattr(self, name) is not None and self.partitions is None:
                raise ServetwinError(f"--{name}: is for the parts of a stream; give --partitions")

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

        if options.path is None:
            raise TraceError("a stream wants TRACE, a file")
        if closed_loop:
            raise TraceError("--closed-loop needs the whole trace: servetwin replay")
        if options.rate_scale is not None and options.rate_per_s is not None:
            raise TraceError("--rate and --rate-scale exclude each other; give one")
        file = TraceFile(options.path, options.reader, options.max_bad_rows)
        trace = StreamedTrace.open(file, Chosen(options.start_s, options.end_s, options.limit))
        if trace.survey.followers and closed_loop is None:
            raise TraceError(
                f"{options.path}: has requests that follow an answer, which a stream does not; "
                "give --open-loop, or use servetwin replay"
            )
        if options.rate_scale is not None:
            trace = trace.scaled(options.rate_scale)
        return trace if options.rate_per_s is None else trace.at_rate(options.rate_per_s)
