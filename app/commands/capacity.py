"""``servetwin capacity``: the rate, the replicas or the users with which an SLO is kept."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from servetwin.app.reports.progress import progress
from servetwin.app.scenario.options.common import (
    MOST_REPLICATIONS,
    SLO,
    Attainment,
    Json,
    Seed,
    TracePath,
    Vary,
)
from servetwin.app.scenario.options.count import CountOptions, candidates
from servetwin.app.scenario.options.groups import MOST_COUNT, Only, takes_options
from servetwin.app.scenario.options.policy import ClusterOptions, PolicyOptions, ScenarioOptions
from servetwin.app.scenario.options.server import ServerOptions
from servetwin.app.scenario.options.trace import TraceOptions
from servetwin.workloads.errors import PolicyError, ServetwinError

if TYPE_CHECKING:
    from servetwin.app.scenario.answers import Answer, What
    from servetwin.sim.experiments.capacity import Capacity, SLOTarget
    from servetwin.sim.experiments.scenario import Scenario
    from servetwin.workloads.trace import Trace

_OTHERS = tuple(name for name in ClusterOptions.__dataclass_fields__ if name != "replicas")
_OF_A_RATE, _OF_A_COUNT = 10, 20
"""Replications where no option says how many."""


@takes_options(
    "--slo", "--attainment", "--profile", "--model", "--hardware", "--replicas", "--users",
    "--vary",
)  # fmt: skip
def capacity(
    trace: TracePath,
    slo: Annotated[str, SLO],
    servers: ServerOptions,
    policy: PolicyOptions,
    cluster: Annotated[ClusterOptions, Only(*_OTHERS)],
    part: TraceOptions,
    count: CountOptions,
    replicas: Annotated[
        str | None,
        Option(
            metavar="[N]",
            help="{cluster.replicas} Without a number: how many keep the SLO.",
            rich_help_panel="Cluster",
        ),
    ] = None,
    vary: Vary = (),
    attainment: Attainment = 0.99,
    replications: Annotated[
        int | None,
        Option(
            help="Draws behind an interval, of engine and traffic; 0 for none. Default "
            f"{_OF_A_RATE}, of replicas and users {_OF_A_COUNT}.",
            min=0,
            max=MOST_REPLICATIONS,
        ),
    ] = None,
    precision: Annotated[
        float, Option(help="Relative width at which a search ends.", min=1e-6, max=1)
    ] = 0.01,
    processes: Annotated[int, Option(help="Replications side by side.", min=1, max=512)] = 1,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Find the highest rate of TRACE at which enough requests meet the SLO, with an interval; or,
    with --replicas or --users, how many keep it."""
    target, number = _target(slo, attainment), _number(replicas)
    counts_replicas = replicas is not None and number is None
    count.check(counts_replicas)
    options = ScenarioOptions(servers, policy, replace(cluster, replicas=number), part)
    options = options.with_trace(trace, seed)
    question = _Question(options, target, seed, replications, precision, processes)
    if not (counts_replicas or count.users or vary or count.price):
        question.report_rate(json)
        return
    what: What = "users" if count.users else "replicas" if counts_replicas else "rate"
    question.report_answers(what, count, vary, json)


@dataclass(frozen=True, slots=True)
class _Question:
    """What is asked of every candidate."""

    options: ScenarioOptions
    target: "SLOTarget"
    seed: int
    replications: int | None
    precision: float
    processes: int

    def report_rate(self, json: bool) -> None:
        """Print the highest rate of the one scenario."""
        from servetwin.app.reports.capacity import as_json, report_lines
        from servetwin.app.reports.run_words import outside_warning
        from servetwin.app.scenario.scenarios import build_scenario

        options, target = self.options, self.target
        servers = options.servers.servers()
        requests = options.trace.read()
        scenario = build_scenario(requests, servers, options.policy, options.cluster)
        found = self._rate(requests, scenario, "")
        highest = found.tried[-1].summary["provenance"]
        if warning := outside_warning(highest, widened=found.replications > 1):
            typer.echo(warning, err=True)
        if json:
            typer.echo(as_json(found, target, requests, scenario, options))
        else:
            record = options.servers.record()
            typer.echo("\n".join(report_lines(found, target, requests, scenario, record)))

    def report_answers(
        self, what: "What", count: CountOptions, vary: tuple[str, ...], json: bool
    ) -> None:
        """Print the answer of every candidate; those that cannot be are named with the reason."""
        from servetwin.app.reports.how_many import as_json, report_lines
        from servetwin.app.scenario.answers import of_problem
        from servetwin.sim.experiments.fleet import devices

        prices, requests = count.prices(), self.options.trace.read()
        notes: dict[str, None] = {}
        found = candidates(vary, self.options, requests, notes.setdefault)
        for note in notes:
            typer.echo(f"note: {note}", err=True)
        can_be = {label: one for label, one in found.items() if not isinstance(one, Exception)}
        prices.require_known((d for one in can_be.values() for d in devices(one)), "--price")
        answers = [
            of_problem(label, what, str(one))
            if isinstance(one, ServetwinError)
            else self._answer(what, label, requests, one, count)
            for label, one in found.items()
        ]
        if not can_be:
            raise PolicyError(answers[0].problem)
        load = self._load_words(what, requests)
        if json:
            record = {"trace": requests.source, "requests": len(requests), "seed": self.seed}
            typer.echo(as_json(answers, self.target, load, record))
        else:
            typer.echo("\n".join(report_lines(answers, self.target, load, len(requests))))

    def _answer(
        self, what: "What", label: str, trace: "Trace", scenario: "Scenario", count: CountOptions
    ) -> "Answer":
        from servetwin.app.scenario.answers import of_capacity, of_counts
        from servetwin.sim.experiments.fleet import Replicas, Users
        from servetwin.sim.experiments.how_many import MOST, CountQuestion, how_many

        if what == "rate":
            rate = self._rate(trace, scenario, label)
            return of_capacity(label, scenario, rate, self.target, count.prices())
        counted = (
            Users(trace, scenario, count.think(), self.seed)
            if what == "users"
            else Replicas(trace, scenario)
        )
        question = CountQuestion(self.target, count.most or MOST, self.seed, self.precision)
        draws = _OF_A_COUNT if self.replications is None else self.replications
        with progress(f"{label or what}, replications", total=draws) as advance:
            found = how_many(
                counted, question, replications=draws, processes=self.processes,
                on_replication=advance,
            )  # fmt: skip
        return of_counts(label, what, scenario, found, count.prices())

    def _rate(self, trace: "Trace", scenario: "Scenario", label: str) -> "Capacity":
        from servetwin.sim.experiments.capacity import find_capacity

        draws = _OF_A_RATE if self.replications is None else self.replications
        with progress(f"{label or 'capacity'}, replications", total=draws) as advance:
            return find_capacity(
                trace, scenario, self.target, seed=self.seed, replications=draws,
                precision=self.precision, processes=self.processes, on_replication=advance,
            )  # fmt: skip

    def _load_words(self, what: "What", trace: "Trace") -> str:
        rate = f" at {trace.rate_per_s:.4g} requests/s" if trace.rate_per_s else ""
        return f"the {len(trace):,} requests of this trace{rate if what == 'replicas' else ''}"


def _number(replicas: str | None) -> int | None:
    """Return the number of replicas; None where they are left out, or asked for."""
    if not replicas:
        return None
    if not (replicas.isascii() and replicas.isdigit() and 1 <= int(replicas) <= MOST_COUNT):
        raise PolicyError(
            f"--replicas: {replicas[:40]!r} is no number from 1 on; leave it out to ask how many"
        )
    return int(replicas)


def _target(slo: str, attainment: float) -> "SLOTarget":
    from servetwin.loadtest.report.limits import parse_slo
    from servetwin.sim.experiments.capacity import SLOTarget

    if not attainment:
        raise PolicyError(f"--attainment: {attainment:g} is no share; 0.99 is 99 of 100 requests")
    return SLOTarget(parse_slo(slo), attainment)
