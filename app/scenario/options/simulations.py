"""Options of simulations: a replay, a grid, a search, a plan."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from typer import Option

from servetwin.app.scenario.options.common import (
    KEEP,
    MOST_REPLICATIONS,
    Attainment,
    Csv,
    Json,
    Overwriting,
    ParallelOptions,
    RunFolder,
    Seed,
    ThinkTime,
    Vary,
)
from servetwin.app.scenario.options.groups import MOST_COUNT, given, require_absent
from servetwin.workloads.errors import PolicyError

if TYPE_CHECKING:
    from servetwin.app.reports.html.picture_file import PictureFile
    from servetwin.app.scenario.answers import What

# The options of a replay that hold for a comparison too.
KEPT = ("scenario", "seed", "full_check", "out", "overwriting", "as_json")
Replications = Annotated[int | None, Option(min=0, max=MOST_REPLICATIONS)]
# Replications where no option says how many.
OF_A_RATE, OF_A_COUNT = 10, 20


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


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a single run has beside its figures."""

    replications: Replications = None
    """Simulations behind the intervals; 0 for none."""
    kv_usage: Annotated[bool, Option("--kv-usage")] = False
    """Where the KV memory is, in every row of the steps."""
    energy: Annotated[bool, Option("--energy")] = False
    """Joules of a token and mean watts, of a server of --model and --gpu."""
    csv: Csv = False


@dataclass(frozen=True, slots=True)
class GridOptions(ParallelOptions):
    """What is varied, and the file that has the points."""

    vary: Vary = ()
    rates: Annotated[str | None, Option(metavar="R,R")] = None
    """Requests/s at each point; else the trace's own."""
    out: Annotated[Path | None, Option()] = None
    """Frame to write (.csv), or to continue."""
    plot: Annotated[Path | None, Option(metavar="FILE")] = None
    """Also draw a curve over --rates, a column of a paper wide: .pdf, .svg, .png or .html."""
    curve: Annotated[str, Option()] = "p99_ttft"
    """What --plot draws: p50, p90 or p99 with _ttft, _tpot or _e2e; goodput, throughput,
    attainment."""
    overwriting: Overwriting = KEEP

    def picture(self, rates: int) -> "PictureFile | None":
        """Return where to draw; raises for what cannot be drawn, before any work."""
        from servetwin.app.reports.html.picture_file import PictureFile

        if self.plot is None:
            return None
        file = PictureFile.checked(self.plot, dark=False, overwrite=self.overwriting.overwrite)
        from servetwin.app.figures.paper import require_curve

        require_curve(self.curve, rates)
        return file


@dataclass(frozen=True, slots=True)
class CountOptions:
    """What is counted, up to which number, and what a device costs."""

    PANEL: ClassVar = "How many"

    users: Annotated[bool, Option("--users")] = False
    """How many users (or agents) at a time, each of which waits for every answer."""
    think_time: ThinkTime = None
    most: Annotated[int | None, Option(min=1, max=100_000)] = None
    """Most replicas or users that are tried; default 1,024."""
    price: Annotated[str | None, Option(metavar="N|DEVICE=N,...")] = None
    """What a device costs per hour, in any currency: 2.5, or h100=2.5,l40s=0.9."""


@dataclass(frozen=True, slots=True)
class CapacityOptions:
    """What is searched, on which candidates, and how exactly."""

    count: CountOptions
    replicas: Annotated[
        str | None,
        Option(
            metavar="[N]",
            help="{cluster.replicas} Without a number: how many keep the SLO.",
            rich_help_panel="Cluster",
        ),
    ] = None
    vary: Vary = ()
    attainment: Attainment = 0.99
    replications: Annotated[int | None, Option(min=0, max=MOST_REPLICATIONS)] = None
    """Draws behind an interval, of engine and traffic; 0 for none. Default 10, of replicas and
    users 20."""
    precision: Annotated[float, Option(min=1e-6, max=1)] = 0.01
    """Relative width at which a search ends."""
    processes: Annotated[int, Option(min=1, max=512)] = 1
    """Replications side by side."""
    seed: Seed = 0
    json: Json = False

    @property
    def what(self) -> "What":
        """What is searched: ``--replicas`` without a number asks for it."""
        return "users" if self.count.users else "replicas" if self.replicas == "" else "rate"

    @property
    def draws(self) -> int:
        """The replications of a search."""
        usual = OF_A_RATE if self.what == "rate" else OF_A_COUNT
        return usual if self.replications is None else self.replications

    def replica_count(self) -> int | None:
        """Return the number of replicas; None where they are left out, or searched."""
        text = self.replicas
        if not text:
            return None
        if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_COUNT):
            raise PolicyError(
                f"--replicas: {text[:40]!r} is no number from 1 on; leave it out to ask how many"
            )
        return int(text)

    def check(self) -> None:
        """Raise ``ServetwinError`` for options that do not go together."""
        if self.count.users and self.replicas == "":
            raise PolicyError("--users: asks for users; give --replicas N beside it, with a number")
        if not self.count.users:
            require_absent(given(self.count, "think_time"), "is of users: give --users as well")
        if self.what == "rate":
            why = "is of replicas or users: give --replicas or --users as well"
            require_absent(given(self.count, "most"), why)


@dataclass(frozen=True, slots=True)
class PlanOptions(ParallelOptions):
    """The GPUs to choose from, what they cost, how many there may be, and where the plan goes."""

    PANEL: ClassVar = "Plan"

    gpu: Annotated[tuple[str, ...], Option("--gpu", "--hardware", metavar="NAME,NAME")] = ()
    """GPUs to choose from: h100,h200,l40s; else five that clouds list."""
    server: Annotated[str, Option(metavar="vllm|sglang|COMMAND")] = "vllm"
    """What serves, vllm@0.19 too; or a command line, whose flags every plan keeps."""
    price: Annotated[str | None, Option(metavar="N|GPU=N,...")] = None
    """Your price of a GPU-hour in place of the list prices: h100=2.5,l40s=0.9, or one for all."""
    most_gpus: Annotated[int, Option(min=1, max=10_000)] = 512
    """Most GPUs in all."""
    budget: Annotated[float | None, Option()] = None
    """Most that all GPUs may cost per hour."""
    spares: Annotated[int, Option(max=1000)] = 0
    """Servers beside those that hold the SLO, for when some fail."""
    day: Annotated[str | None, Option(metavar="[KEY=N,...]")] = None
    """TRACE is a day: also the cheapest fleet and autoscaling rule that hold the SLO over it while
    a replica fails. Settings of the rule: provision_s=60,gb_per_s=5,interval_s=30."""
    replications: Annotated[int, Option(min=0, max=MOST_REPLICATIONS)] = 6
    """Engines drawn for the interval of a capacity; 0 for none."""
    out: Annotated[Path | None, Option(metavar="DIR")] = None
    """Folder for a manifest of Kubernetes for each kind of GPU."""
    overwriting: Overwriting = KEEP
    as_json: Json = False
