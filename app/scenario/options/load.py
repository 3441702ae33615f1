"""From the options of a load test to what is sent: a trace, and how its requests go out."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from math import ceil, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from typer import Option

from servetwin.app.scenario.options.common import Csv, Seed, ThinkTime
from servetwin.app.scenario.options.distributions import (
    USUAL,
    USUAL_OUTPUTS,
    ArrivalChoice,
    OutputTokens,
    PromptTokens,
    independent_lengths,
    lengths_of,
    think_time_of,
)
from servetwin.app.scenario.options.groups import given
from servetwin.app.scenario.options.policy import ClosedLoop, FailFast
from servetwin.app.scenario.options.trace import WHOLE_TRACE, Limit, TraceOptions, TraceShape
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.generators.processes import ARRIVALS
from servetwin.workloads.plugins import split_settings
from servetwin.workloads.tokenizer import LocalTokenizer
from servetwin.workloads.trace import Trace

if TYPE_CHECKING:
    from servetwin.loadtest.options import LoadOptions
    from servetwin.loadtest.sweep.run_sweep import SweepBudget
    from servetwin.loadtest.sweep.sweep import SweepSettings
    from servetwin.sim.records.metrics import SLO
    from servetwin.workloads.generators.arrivals import ArrivalProcess

OWN_LENGTHS = (
    "--prompt-tokens and --output-tokens are of a generated load, and --trace has its own lengths; "
    "--prompt-scale and --output-scale change them"
)
# Requests that users take in turn until the end, where no option says how many.
ENDLESS_REQUESTS = 1000


# For which a level of a climb is sent.
CLIMB_S = 20.0
# Of a level whose load is generated: enough to prove 99 % if none misses.
GENERATED_REQUESTS = 400


@dataclass(frozen=True, slots=True)
class LevelSweepOptions:
    """The levels of a sweep; without ``of`` there is one load test."""

    PANEL: ClassVar = "Sweep"

    of: Annotated[Literal["rates", "users", "slo", "climb"] | None, Option("--sweep")] = None
    """Load test after load test: one user, all at once, then rates or users between, or a search
    for the highest rate that holds --slo; a climb is a short search."""
    levels: Annotated[int | None, Option("--sweep-levels", min=1, max=1000)] = None
    """Rates or users between the two ends; default 6."""
    requests: Annotated[int | None, Option("--sweep-requests", min=20)] = None
    """Requests of a level; default all of --trace, or 400."""
    budget: Annotated[str | None, Option("--sweep-budget", metavar="N|TIME")] = None
    """End after N load tests (24), or after a time: 900s, 15min."""
    precision: Annotated[float | None, Option("--sweep-precision", min=0.001, max=0.5)] = None
    """Relative width at which the search ends; default 0.02."""
    attainment: Annotated[float | None, Option("--attainment")] = None
    """Share of the requests that must meet --slo; default 0.99."""

    def settings(self, requests: int, slo: "SLO | None", wanted: float) -> "SweepSettings":
        """Return what is swept; each level has this number of requests."""
        from servetwin.loadtest.sweep.sweep import SweepOf, SweepSettings

        assert self.of
        levels, precision = self.levels or 6, self.precision or 0.02
        of: SweepOf = "slo" if self.of == "climb" else self.of
        level_s = CLIMB_S if self.of == "climb" else None
        return SweepSettings(of, requests, levels, slo, wanted, precision, level_s)

    def climbing(self) -> "LevelSweepOptions":
        """Return the search for the knee of a command that names no load."""
        precision, budget = self.precision or 0.05, self.budget or "150s"
        return replace(self, of="climb", precision=precision, budget=budget)

    def stopping_rule(self) -> "SweepBudget":
        """Return the budget; raises ``LoadTestError`` where it cannot be read."""
        from servetwin.loadtest.sweep.run_sweep import parse_budget

        return parse_budget(self.budget or "24")

    def contradictions(self) -> Iterator[str]:
        """Yield a message for options that need another one, or exclude each other.

        Raises ``LoadTestError`` where the budget cannot be read.
        """
        if self.of is None:
            for option in given(replace(self, attainment=None)):
                yield f"{option} needs a sweep: give --sweep rates, users or slo as well"
        elif self.of in ("slo", "climb"):
            if self.levels is not None:
                yield "--sweep-levels: the search for --slo chooses its rates; leave it out"
        elif self.precision is not None:
            yield "--sweep-precision: only --sweep slo searches"
        if self.budget is not None:
            self.stopping_rule()
        if self.attainment is not None and not 0 < self.attainment < 1:
            yield f"--attainment {self.attainment:g}: must be above 0 and below 1, such as 0.99"


NO_SWEEP = LevelSweepOptions()


@dataclass(frozen=True, slots=True)
class LoadChoice:
    """The load of the command line: a trace, arrivals or concurrent users, exactly one of them.

    A rate alone is that of a Poisson process; without any load, a search climbs to the knee.
    """

    PANEL: ClassVar = "Load"

    path: Annotated[Path | None, Option("--trace")] = None
    """Trace to replay, in any known format."""
    arrivals: Annotated[
        str | None,
        Option(
            metavar="PROCESS[:KEY=N,...]",
            help=f"Or generate: {', '.join(ARRIVALS)}, path.py:Class; such as gamma:cv=2.",
        ),
    ] = None
    concurrency: Annotated[int | None, Option(min=1)] = None
    """Or a closed loop of N concurrent users."""
    rate_per_s: Annotated[float | None, Option("--rate")] = None
    """Requests/s that are generated (Poisson, unless --arrivals says), or scaled to."""
    prompt_tokens: PromptTokens = None
    output_tokens: OutputTokens = None
    header_columns: Annotated[str | None, Option(metavar="COLUMN=HEADER,...")] = None
    """Columns of the trace with an HTTP header of each request; values are not stored."""
    think_time: ThinkTime = None
    ramp_up_s: Annotated[float, Option("--ramp-up", min=0)] = 0.0
    """Seconds until the last user begins."""
    loop: Annotated[int, Option(min=1)] = 1
    """Repeat the trace N times."""
    duration_s: Annotated[float | None, Option("--duration")] = None
    """Stop sending after N seconds."""
    warm_up_s: Annotated[float, Option("--warm-up", min=0)] = 0.0
    """First seconds that no figure counts."""
    drain_s: Annotated[float | None, Option("--drain", min=0)] = None
    """Seconds for answers after the last send; default --timeout."""
    cancel: Annotated[str | None, Option(metavar="share=P,after=N")] = None
    """Hang up on some: share=0.1,after=5tokens or after=200ms."""
    retries: Annotated[int, Option(min=0)] = 0
    """Retries after 429, 503 or no connection."""
    give_up_after: Annotated[str, Option(metavar="TIME|never")] = "10s"
    """End the test after this time without any connection; ms, s or min."""
    closed_loop: ClosedLoop = None
    fail_fast: FailFast = None
    sweep: LevelSweepOptions = NO_SWEEP
    shape: TraceShape = WHOLE_TRACE
    limit: Limit = None
    csv: Csv = False
    seed: Seed = 0

    def __post_init__(self) -> None:
        if not (self.path or self.arrivals or self.concurrency or self.sweep.of):
            if self.rate_per_s is not None:
                object.__setattr__(self, "arrivals", "poisson")
            elif self.limit is None and self.duration_s is None:
                object.__setattr__(self, "sweep", self.sweep.climbing())
        for message in self._contradictions():
            raise LoadTestError(message)

    @property
    def is_made(self) -> bool:
        """Whether the trace is no file that could be read again."""
        return self.path is None or self.concurrency is not None

    @property
    def endless(self) -> bool:
        """Whether users send until the duration is over."""
        return self.concurrency is not None and self.limit is None and self.duration_s is not None

    def record(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, for ``scenario.yaml``.

        The options of a sweep are not of its load.
        """
        record = {f.name: v for f in fields(self) if (v := getattr(self, f.name)) != f.default}
        record.pop("sweep", None)
        if self.path is not None:
            record["path"] = str(self.path)
        if self.shape != WHOLE_TRACE:
            record["shape"] = asdict(self.shape)
        return record

    def options(self, **more: Any) -> "LoadOptions":
        """Return how the load is sent; ``more`` are other fields of ``LoadOptions``."""
        from servetwin.loadtest.options import LoadOptions, parse_cancellation, parse_give_up

        same = ("concurrency", "endless", "duration_s", "drain_s", "warm_up_s", "retries", "seed")
        return LoadOptions(
            closed_loop=True if self.concurrency else self.closed_loop,
            fail_fast=bool(self.fail_fast),
            cancellation=parse_cancellation(self.cancel) if self.cancel else None,
            give_up_after_s=parse_give_up(self.give_up_after),
            **{name: getattr(self, name) for name in same},
            **more,
        )

    def tokenizer(self) -> LocalTokenizer | None:
        """Return the tokenizer that counts prompts; raises ``TraceError`` where it is none."""
        return LocalTokenizer(Path(self.shape.tokenizer)) if self.shape.tokenizer else None

    def trace(self) -> Trace:
        """Read or generate the requests to send.

        Raises ``LoadTestError`` or ``TraceError`` for what cannot be read or generated.
        """
        from servetwin.loadtest.plan.request_dependencies import begun_before
        from servetwin.loadtest.plan.users import with_users

        trace = self._read() if self.path else self._generated()
        if self.concurrency is not None:
            think = think_time_of(self.think_time) if self.think_time else None
            trace = with_users(
                trace, self.concurrency, think=think, ramp_up_s=self.ramp_up_s, seed=self.seed
            )
        if self.duration_s is None:
            return trace
        closed_loop = self.options().follows(trace)
        return begun_before(trace, self.duration_s, closed_loop=closed_loop)

    def _contradictions(self) -> Iterator[str]:
        """Yield a message for options that exclude each other, or that need another one."""
        yield from self.sweep.contradictions()
        if self.shape.lanes is not None:
            others = given(self, "concurrency", "duration_s", "warm_up_s", "loop", "closed_loop")
            for option in others | ({"--sweep": self.sweep.of} if self.sweep.of else {}):
                yield f"{option} and --lanes exclude each other: lanes have rules of their own"
        if self.sweep.of is None:
            yield from self._contradictions_of_the_source()
        else:
            yield from self._contradictions_of_a_sweep()
        users = self.concurrency is not None or self.sweep.of == "users"
        if not users and (self.think_time is not None or self.ramp_up_s):
            yield "--think-time and --ramp-up are of users: give --concurrency N as well"
        if self.path is None and self.header_columns:
            yield "--header-columns are of a trace: give --trace as well"
        shape = replace(self.shape, tokenizer=None, lora_modules=None)
        if self.path is None and (shape != WHOLE_TRACE or self.loop != 1):
            yield "--start, --end, --loop, --lanes and scales are of a trace: give --trace as well"
        if self.path is not None and self.prompt_tokens:
            yield OWN_LENGTHS
        if self.concurrency is not None and self.closed_loop is False:
            yield "--open-loop and --concurrency exclude each other: users wait for their answers"
        if None not in (self.rate_per_s, self.shape.rate_scale):
            yield "--rate and --rate-scale exclude each other; give one"

    def _contradictions_of_the_source(self) -> Iterator[str]:
        if self.arrivals and (self.path or self.concurrency):
            other = "--trace" if self.path else "--concurrency"
            yield f"--arrivals and {other} exclude each other; give one"
        if not (self.arrivals or self.path or self.concurrency):
            yield (
                "nothing to send: give --rate R, --concurrency N or --trace FILE as well; without "
                "--duration and --limit the load climbs to the knee"
            )
        if self.path is None and self.limit is None and self.duration_s is None:
            yield "the load has no end: give --duration S or --limit N"
        if self.limit is not None and self.limit < 1:
            yield f"--limit {self.limit}: must be at least 1 request"
        scaled = (self.rate_per_s, self.shape.rate_scale) != (None, None)
        if self.concurrency is not None and scaled:
            yield "--concurrency: how fast users send is up to the server; leave the rate out"

    def _contradictions_of_a_sweep(self) -> Iterator[str]:
        """Yield a message for options that set what the levels of a sweep differ in."""
        own = ("rate_per_s", "concurrency", "limit", "duration_s")
        scale = {"--rate-scale": self.shape.rate_scale} if self.shape.rate_scale else {}
        for name in given(self, *own) | scale:
            yield (
                f"{name} and --sweep exclude each other: a sweep sets the load of its levels; "
                "--sweep-requests N is of each level"
            )
        if self.arrivals and self.path:
            yield "--arrivals and --trace exclude each other; give one"
        if self.arrivals and self.arrivals.startswith("ramp"):
            yield "--arrivals ramp and --sweep exclude each other: a level has one rate"
        if self.arrivals and self.sweep.of == "users":
            yield "--arrivals and --sweep users exclude each other: users wait for their answers"

    def _read(self) -> Trace:
        from servetwin.loadtest.plan.looped import looped
        from servetwin.workloads.fields import parse_header_columns

        assert self.path
        options = TraceOptions(**asdict(self.shape), limit=self.limit, rate_per_s=self.rate_per_s)
        columns = parse_header_columns(self.header_columns) if self.header_columns else None
        options = replace(options, path=self.path, seed=self.seed, header_columns=columns)
        return looped(self._with_outputs(options.read()), self.loop)

    def _with_outputs(self, trace: Trace) -> Trace:
        """Return real prompts with the output lengths of the options, where there are any."""
        from servetwin.workloads.generators.generate import with_output_lengths

        if self.output_tokens is None:
            return trace
        if any(request.prompt is None for request in trace):
            raise LoadTestError(OWN_LENGTHS)
        outputs = lengths_of(self.output_tokens, USUAL_OUTPUTS, "--output-tokens")
        return with_output_lengths(trace, outputs, self.output_tokens, self.seed)

    def _generated(self) -> Trace:
        from servetwin.workloads.generators.arrivals import ConstantArrivals

        if self.arrivals is None:  # Users set the times; only the lengths are wanted.
            count = self.limit or max(ENDLESS_REQUESTS, self.concurrency or 0)
            return self._generate(ConstantArrivals(1.0), count)
        process = self._arrivals(self.arrivals).process()
        end_s = self.duration_s or 0.0
        trace = self._generate(process, self.limit or _enough(process.rate_per_s * end_s))
        while self.limit is None and trace.requests[-1].arrival_s < end_s:
            trace = self._generate(process, 2 * len(trace))
        if self.duration_s is None:
            return trace
        return replace(trace, requests=tuple(r for r in trace if r.arrival_s < end_s))

    def _generate(self, process: "ArrivalProcess", count: int) -> Trace:
        from servetwin.workloads.generators.generate import WorkloadSpec, generate

        note = [f"arrivals {self.arrivals}"] if self.arrivals else []
        note += [f"at {self.rate_per_s:g}/s"] if self.rate_per_s else []
        prompts, outputs = self.prompt_tokens or USUAL, self.output_tokens or USUAL
        note += [f"prompts {prompts}", f"outputs {outputs}", f"seed {self.seed}"]
        lengths = independent_lengths(prompts, outputs)
        made = generate(WorkloadSpec(count, process, lengths), self.seed)
        return replace(made, notes=(", ".join(note),))

    def _arrivals(self, text: str) -> ArrivalChoice:
        name, _ = split_settings(text)
        ARRIVALS.require(name)
        choice = ArrivalChoice(text, self.rate_per_s or 0.0)
        if name != "ramp":
            if self.rate_per_s is None:
                raise LoadTestError(f"--arrivals {text}: wants --rate R, in requests/s")
            return choice
        if self.rate_per_s is not None:
            raise LoadTestError("--arrivals ramp has rates of its own: leave --rate out")
        if self.duration_s is None:
            raise LoadTestError("--arrivals ramp: wants --duration S, for how long it climbs")
        return replace(choice, period_s=self.duration_s)


def _enough(expected: float) -> int:
    """Return a count that hardly any process of ``expected`` requests on average exceeds."""
    return ceil(expected + 6 * sqrt(expected)) + 16
