"""Options that several commands share: single ones, and those of a gate."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypeVar

from typer import Argument, Option

from servetwin.app.scenario.options.groups import given, require_absent

if TYPE_CHECKING:
    from servetwin.app.reports.html.picture_file import PictureFile
    from servetwin.sim.experiments.parallel_map import Called
    from servetwin.sim.records.run_claim import RunClaim

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

TRACE = Argument(help="Any known trace: a file, or a WEKA directory.")
TracePath = Annotated[Path, TRACE]
SLO = Option(help="Such as ttft=500ms,ttfo=2s,tpot=50ms,e2e=2s,task=120s.")
Attainment = Annotated[
    float, Option(help="Share of the requests that must meet the SLO.", min=0, max=1)
]
MOST_REPLICATIONS = 100_000
Seed = Annotated[int, Option(help="Seed of every random stream.", min=0, max=2**63 - 1)]
RunFolder = Annotated[Path | None, Option(help="Run folder to write.")]
Vary = Annotated[
    tuple[str, ...],
    Option(metavar="KEY=A,B", help="A setting and its values: max_seqs=16,64; repeatable."),
]
ThinkTime = Annotated[
    str | None,
    Option(
        metavar="S|DISTRIBUTION[:KEY=N,...]",
        help="Of users, in seconds: 2, exponential:mean=2, lognormal:median=2,sigma=1.",
        rich_help_panel="Closed loop",
    ),
]
Csv = Annotated[bool, Option("--csv", help="Also write requests.csv into the run folder.")]
Json = Annotated[bool, Option("--json", help="One JSON object on stdout.")]


@dataclass(frozen=True, slots=True)
class Overwriting:
    """Whether the output that exists may be replaced."""

    overwrite: Annotated[bool, Option("--overwrite")] = False
    """Overwrite existing output (only files that Servetwin wrote)."""

    def claimed(self, folder: Path) -> "AbstractContextManager[RunClaim]":
        """Claim a run folder before the work begins (``sim.records.run_claim.claimed_run``)."""
        from servetwin.sim.records.run_claim import claimed_run

        return claimed_run(folder, overwrite=self.overwrite)

    def claimed_if_asked(self, folder: Path | None) -> "AbstractContextManager[RunClaim | None]":
        """Do as ``claimed`` where there is a folder; else yield None."""
        return nullcontext() if folder is None else self.claimed(folder)

    def claimed_or_new(self, folder: Path | None, stem: Path) -> "AbstractContextManager[RunClaim]":
        """Do as ``claimed`` where there is a folder; else claim a new one, named by ``stem``."""
        from servetwin.sim.records.run_claim import claimed_new_run

        return claimed_new_run(stem) if folder is None else self.claimed(folder)

    def claimed_output(self, path: Path, kind: str) -> AbstractContextManager[Path]:
        """Claim the file of a ``profile`` or a ``trace`` before the work begins."""
        from servetwin.sim.records.run_claim import claimed_output

        return claimed_output(path, kind, overwrite=self.overwrite)


KEEP = Overwriting()


@dataclass(frozen=True, slots=True)
class ParallelOptions:
    """Where the parts of a long simulation run: on processes here, or on a Ray cluster."""

    processes: Annotated[int | None, Option(min=1, max=512, rich_help_panel="Parallel")] = None
    """Parts or points side by side; else one per core."""
    ray: Annotated[str | None, Option(metavar="[HOST:PORT]", rich_help_panel="Parallel")] = None
    """On a Ray cluster (needs ray): at that address, else of RAY_ADDRESS, else of this machine."""

    def map(
        self,
        function: Callable[[_Item], _Result],
        items: Sequence[_Item],
        called: "Called",
    ) -> Iterator[tuple[int, _Result]]:
        """Yield the place and the result of each item as it is done; raises ``LostItems``."""
        from servetwin.sim.experiments.parallel_map import map_on_processes
        from servetwin.sim.experiments.ray_cluster import map_on_ray

        if self.ray is not None:
            return map_on_ray(function, items, self.ray or None, called)
        workers = self.processes or os.cpu_count() or 1
        return map_on_processes(function, items, workers, called)


@dataclass(frozen=True, slots=True)
class GateOptions:
    """The runs of a baseline, the limits of the gate, and what fails a load test in any case."""

    PANEL: ClassVar = "Gate"

    baseline: Annotated[tuple[Path, ...], Option(metavar="RUN")] = ()
    """A run of the baseline, or a folder of several; repeatable."""
    allow: Annotated[str | None, Option(metavar="METRIC=SHARE,...")] = None
    """How much worse a metric may be; default
    throughput=3%,tpot=5%,ttft=10%,ttft.p90=10%,ttfo=10%,finished=1%."""
    fail_if: Annotated[tuple[str, ...], Option(metavar="METRIC>LIMIT")] = ()
    """Exit with 1 where it is so: 'failed>1%', 'ttft_p99>500ms', 'slo_attainment<99%'; repeatable;
    default 'failed>10%'."""

    def limits(self) -> Mapping[str, float] | None:
        """Return the limits by metric, if any; raises ``LoadTestError`` for what is none."""
        from servetwin.app.verdict.gate import parse_limits

        return None if self.allow is None else parse_limits(self.allow)


@dataclass(frozen=True, slots=True)
class Additions:
    """Profiles, schedulers and memories beside the shipped ones, and the folder of kept runs."""

    profiles: Annotated[tuple[Path, ...], Option("--profile")] = ()
    """Also offer this profile (.json); repeatable."""
    batching: Annotated[tuple[str, ...], Option()] = ()
    """Also offer this scheduler (path.py:Class)."""
    kv: Annotated[tuple[str, ...], Option()] = ()
    """Also offer this KV memory (path.py:Class)."""
    runs: Annotated[Path, Option()] = Path("runs")
    """Folder in which runs are kept."""
    targets: Annotated[tuple[str, ...], Option("--target", metavar="URL")] = ()
    """Let load tests go to this server alone; repeatable; beyond loopback, the default is none."""

    def as_argument(self) -> str:
        """Return the additions as the dashboard's script takes them."""
        return json.dumps(asdict(self), default=str)


# A chart of one run, or of several beside each other.
RunChart = Literal[
    "ttft", "tpot", "e2e", "ttft-over-time", "tpot-over-time", "throughput", "server", "requests",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class PictureOptions:
    """A chart as a file, at the size of a talk."""

    PANEL: ClassVar = "Picture"

    plot: Annotated[Path | None, Option(metavar="FILE")] = None
    """Also draw a chart: .svg, .pdf or .png (with kaleido and Chrome), or .html (with neither)."""
    chart: Annotated[RunChart | None, Option()] = None
    """What the picture shows: the distribution of TTFT, unless named."""
    dark: Annotated[bool, Option("--dark")] = False
    """Draw on a dark page rather than on a white one."""

    def file(self, *, overwrite: bool, runs: int) -> "PictureFile | None":
        """Return where to draw the runs; None without ``--plot``.

        Raises ``PictureError`` for what cannot be drawn, before any work.
        """
        if self.plot is None:
            require_absent(given(self), "goes with --plot")
            return None
        from servetwin.app.reports.html.picture_file import PictureError, PictureFile

        if self.chart == "requests" and runs > 1:
            raise PictureError(f"--chart {self.chart}: shows one run, and there are {runs}")
        return PictureFile.checked(self.plot, dark=self.dark, overwrite=overwrite)
