"""Options that several commands share: single ones, and those of a gate."""

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from typer import Argument, Option

if TYPE_CHECKING:
    from servetwin.app.reports.html.picture_file import PictureFile
    from servetwin.loadtest.report.limits import FailCondition
    from servetwin.sim.records.run_claim import RunClaim

TRACE = Argument(help="Any known trace: a file, or a WEKA directory.")
TracePath = Annotated[Path, TRACE]
SLO = Option(help="Such as ttft=500ms,tpot=50ms,e2e=2s.")
Attainment = Annotated[
    float, Option(help="Share of the requests that must meet the SLO.", min=0, max=1)
]
MOST_REPLICATIONS = 100_000
Seed = Annotated[int, Option(help="Seed of every random stream.", min=0, max=2**63 - 1)]
RunFolder = Annotated[Path | None, Option(help="Run folder to write.")]
Recorded = Annotated[
    Path | None,
    Option(
        metavar="RUN",
        help="Instead of a live endpoint: a run folder of loadtest import, or of a load test, or a "
        "table with measured times.",
    ),
]
Vary = Annotated[
    tuple[str, ...],
    Option(metavar="KEY=A,B", help="A setting and its values: max_seqs=16,64; repeatable."),
]
ThinkTime = Annotated[
    str | None,
    Option(
        metavar="S|DISTRIBUTION[:KEY=N,...]",
        help="Of users, in seconds: 2, exponential:mean=2, lognormal:median=2,sigma=1.",
        rich_help_panel="Load",
    ),
]
Csv = Annotated[bool, Option("--csv", help="Also write requests.csv into the run folder.")]
Ray = Annotated[
    str | None,
    Option(
        metavar="[HOST:PORT]",
        help="On a Ray cluster (needs ray): at that address, else of RAY_ADDRESS, else of this "
        "machine.",
    ),
]
Json = Annotated[bool, Option("--json", help="One JSON object on stdout.")]


@dataclass(frozen=True, slots=True)
class Overwriting:
    """What may become of the run that ``--out`` has, and of the picture that ``--plot`` has."""

    overwrite: Annotated[bool, Option("--overwrite")] = False
    """Replace the run, or the file of ours, that --out or --plot has; other files stay."""

    def claimed(self, folder: Path, resume: bool = False) -> "AbstractContextManager[RunClaim]":
        """Claim a run folder before the work begins (``sim.records.run_claim.claimed_run``)."""
        from servetwin.sim.records.run_claim import claimed_run

        return claimed_run(folder, overwrite=self.overwrite, resume=resume)

    def claimed_if_asked(
        self, folder: Path | None, resume: bool = False
    ) -> "AbstractContextManager[RunClaim | None]":
        """Do as ``claimed`` where there is a folder; else yield None."""
        return nullcontext() if folder is None else self.claimed(folder, resume)

    def claimed_profile(self, path: Path) -> AbstractContextManager[Path]:
        """Claim the file of a profile before the work begins."""
        from servetwin.sim.records.run_claim import claimed_profile

        return claimed_profile(path, overwrite=self.overwrite)


KEEP = Overwriting()


@dataclass(frozen=True, slots=True)
class GateOptions:
    """The runs of a baseline, the limits of the gate, and what fails a load test in any case."""

    PANEL: ClassVar = "Gate"

    baseline: Annotated[
        tuple[Path, ...],
        Option(metavar="RUN", help="A run of the baseline, or a folder of several; repeatable."),
    ] = ()
    allow: Annotated[
        str | None,
        Option(
            metavar="METRIC=SHARE,...",
            help="How much worse a metric may be; default "
            "throughput=3%,tpot=5%,ttft=10%,ttft.p90=10%,finished=1%.",
        ),
    ] = None

    fail_if: Annotated[
        tuple[str, ...],
        Option(
            metavar="METRIC>LIMIT",
            help="Exit with 1 where it is so: 'failed>1%', 'ttft_p99>500ms', 'slo_attainment<99%'; "
            "repeatable; default 'failed>10%'.",
        ),
    ] = ()

    def limits(self) -> Mapping[str, float]:
        """Return the limits by metric; raises ``LoadTestError`` where they cannot be read."""
        from servetwin.app.verdict.gate import GATE_LIMITS, parse_limits

        return GATE_LIMITS if self.allow is None else parse_limits(self.allow)

    def fail_conditions(self, slo: str | None) -> "list[FailCondition]":
        """Return what fails a load test; raises ``LoadTestError`` where it cannot be read."""
        from servetwin.loadtest.report.limits import parse_conditions

        return parse_conditions(self.fail_if, slo=slo is not None)


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

    def as_argument(self) -> str:
        """Return the additions as the dashboard's script takes them."""
        return json.dumps(asdict(self), default=str)


class RunChart(StrEnum):
    """A chart of one run, or of several beside each other."""

    ttft = "ttft"
    tpot = "tpot"
    e2e = "e2e"
    ttft_over_time = "ttft-over-time"
    tpot_over_time = "tpot-over-time"
    throughput = "throughput"
    server = "server"
    requests = "requests"


@dataclass(frozen=True, slots=True)
class PictureOptions:
    """A chart as a file, at the size of a talk."""

    PANEL: ClassVar = "Picture"

    plot: Annotated[Path | None, Option(metavar="FILE")] = None
    """Also draw a chart: .svg or .png (with kaleido and Chrome), or .html (with neither)."""
    chart: Annotated[RunChart | None, Option()] = None
    """What the picture shows: the distribution of TTFT, unless named."""
    dark: Annotated[bool, Option("--dark")] = False
    """Draw on a dark page rather than on a white one."""

    def file(self, *, overwrite: bool, runs: int) -> "PictureFile | None":
        """Return where to draw so many runs, None without ``--plot``.

        Raises ``PictureError`` for what cannot be drawn, before any work.
        """
        from servetwin.app.reports.html.picture_file import PictureError, PictureFile

        if self.plot is None:
            given = {"--chart": self.chart is not None, "--dark": self.dark}
            if alone := [option for option, is_given in given.items() if is_given]:
                raise PictureError(f"{alone[0]}: goes with --plot")
            return None
        if self.chart is RunChart.requests and runs > 1:
            raise PictureError(f"--chart {self.chart}: shows one run, and there are {runs}")
        return PictureFile.checked(self.plot, dark=self.dark, overwrite=overwrite)
