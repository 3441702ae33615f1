"""``servetwin loadtest --sweep``: load tests of one endpoint at many levels, in one folder."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from servetwin.app.commands.load.sent_load import LoadTest, server_said
from servetwin.app.reports.level_sweep import level_line, sweep_lines
from servetwin.app.reports.progress import progress, saved
from servetwin.app.scenario.levels.level_load import LevelLoad
from servetwin.app.scenario.options.endpoint import EndpointOptions, TooLongChoice, endpoint_line
from servetwin.app.scenario.options.load import LoadChoice
from servetwin.app.scenario.options.policy import ClusterOptions, PolicyOptions
from servetwin.app.scenario.options.server import ServerOptions
from servetwin.app.scenario.scenarios import build_scenario
from servetwin.loadtest.plan.endpoint_limits import check_times, within_context, without_outputs
from servetwin.loadtest.run.event_loop import signals_deferred
from servetwin.loadtest.sweep.level import Level, LevelPlan, measured_level
from servetwin.loadtest.sweep.run_sweep import run_sweep
from servetwin.loadtest.sweep.sweep import PredictedKnee, Sweep
from servetwin.sim.experiments.capacity import SLOTarget, find_capacity
from servetwin.sim.experiments.predict import run_once
from servetwin.workloads.errors import EndedEarly, LoadTestError
from servetwin.workloads.rows import counted

if TYPE_CHECKING:
    from servetwin.loadtest.body.options import BodyOptions
    from servetwin.loadtest.endpoint import Endpoint
    from servetwin.sim.experiments.scenario import Scenario
    from servetwin.sim.records.metrics import SLO
    from servetwin.sim.records.run import Run
    from servetwin.sim.records.run_claim import RunClaim
    from servetwin.workloads.trace import Trace

Send = Callable[["Trace", LoadChoice, "Endpoint", Path], "Run"]
"""Sends requests to an endpoint as a load says, and keeps them in a folder where it made them."""

REPLICATIONS = 10
"""Simulated engines behind the interval of the predicted knee."""


@dataclass(frozen=True, slots=True)
class Simulator:
    """The server of the second line: profiles, and policies laid over their own."""

    servers: ServerOptions
    policy: PolicyOptions

    @property
    def is_given(self) -> bool:
        """Whether there is a second line."""
        return bool(self.servers.profiles)

    def scenario(self, trace: "Trace") -> "Scenario":
        """Return the scenario that predicts load tests with requests like those of ``trace``."""
        return build_scenario(trace, self.servers.servers(), self.policy, ClusterOptions())


@dataclass(frozen=True, slots=True)
class LevelTests:
    """The load tests of a sweep: what is sent at each level, where to, and where it is kept."""

    load: LevelLoad
    endpoint: "Endpoint"
    on_too_long: TooLongChoice | None
    slo: "SLO | None"
    folder: Path
    send: Send
    scenario: "Scenario | None"

    def requests(self, plan: LevelPlan) -> "Trace":
        """Return the requests of a level that fit into the server's context."""
        return self._fitting(self.load.trace(plan))

    def measure(self, plan: LevelPlan, attempt: int) -> Level:
        """Send a level, keep its run, and return what it measured and what was predicted."""
        typer.echo(f"level {plan.number}: {plan.load}", err=True)
        requests, choice = self.requests(plan), self.load.of(plan)
        salted = self.endpoint.salted("level", plan.number, attempt)
        at = self.folder / plan.folder
        run = self.send(requests, choice, salted, at)
        with signals_deferred(), saved(run, at):
            delivered = run.extra["delivered"]
        if delivered["interrupted"] or delivered["stopped"]:
            reason = delivered["stopped"] or "interrupted"
            raise EndedEarly(f"{reason}, at {plan.load}, which does not count")
        level = measured_level(plan, run, self.slo, attempt, self._predicted(requests, choice))
        typer.echo(level_line(level), err=True)
        return level

    def predicted_knee(self, wanted: float) -> PredictedKnee | None:
        """Return the simulated capacity for the SLO.

        None without a profile or an SLO, or where the levels have no rate.
        """
        if self.scenario is None or self.slo is None or self.load.choice.sweep.of == "users":
            return None
        trace = self._fitting(self.load.predicted_trace())
        with progress("predicting the knee, replications", total=REPLICATIONS) as advance:
            found = find_capacity(
                trace, self.scenario, SLOTarget(self.slo, wanted),
                seed=self.load.choice.seed, replications=REPLICATIONS, on_replication=advance,
            )  # fmt: skip
        rate = found.rate_per_s
        if found.replications < 2:
            return PredictedKnee(rate.value)
        return PredictedKnee(rate.value, rate.low, rate.high)

    def _fitting(self, trace: "Trace") -> "Trace":
        too_long = self.on_too_long
        return within_context(trace, self.endpoint, too_long.value if too_long else None)

    def _predicted(self, requests: "Trace", choice: LoadChoice) -> "Run | None":
        if self.scenario is None:
            return None
        run = run_once(requests, self.scenario, seed=choice.seed)
        run.requests["warm_up"] = run.requests["scheduled_s"] < choice.warm_up_s
        return run


def sweep_levels(
    levels: LevelLoad,
    endpoint: "Endpoint",
    on_too_long: TooLongChoice | None,
    slo: "SLO | None",
    simulator: Simulator,
    claim: "RunClaim",
    send: Send,
    as_json: bool,
) -> Path:
    """Run a sweep, print it, and return where it is kept.

    The exit code is 1 where the sweep ended before its end or its budget.
    """
    load = levels.choice
    if load.cancel and simulator.is_given:
        raise LoadTestError("--profile and --cancel: no simulated client hangs up; leave one out")
    likely = levels.predicted_trace()
    scenario = simulator.scenario(likely) if simulator.is_given else None
    salted, folder = endpoint.salted("sweep"), claim.folder
    tests = LevelTests(levels, salted, on_too_long, slo, folder, send, scenario)
    first = tests.requests(LevelPlan(0, "throughput"))
    settings = load.sweep.settings(len(first), slo)
    predicted = tests.predicted_knee(settings.wanted)
    sweep = Sweep(settings, predicted=predicted, about=_about(salted, first, load, simulator))

    def keep(state: Sweep) -> None:
        state.save(folder)

    claim.begin()
    keep(sweep)
    sweep = run_sweep(sweep, load.sweep.stopping_rule(), tests.measure, keep)
    with saved(sweep, folder) as kept:
        if as_json:
            typer.echo(json.dumps({**sweep.as_dict(), "folder": str(kept)}))
        else:
            typer.echo("\n".join([*sweep_lines(sweep), f"files: {kept}"]))
    if sweep.early:
        finished = counted(sum(level.counts for level in sweep.levels), "finished level")
        raise EndedEarly(f"{sweep.ended}; kept in {kept}: {finished}")
    return kept


def _about(
    endpoint: "Endpoint", trace: "Trace", load: LoadChoice, simulator: Simulator
) -> Mapping[str, Any]:
    return {
        "base_url": endpoint.base_url,
        "model": endpoint.model,
        "prompt_salt": endpoint.salt,
        "trace": trace.source,
        "real_prompts": any(request.prompt is not None for request in trace),
        "load": load.record(),
        **({"profile": list(simulator.servers.profiles)} if simulator.is_given else {}),
    }


@dataclass(frozen=True, slots=True)
class SweptServer:
    """A server, and what the load tests of its sweep have in common."""

    url: str
    load: LoadChoice
    endpoint: EndpointOptions
    body: "BodyOptions"
    slo: "SLO | None"
    how: Mapping[str, Any]
    """Fields of ``LoadOptions`` that every level has."""

    def sweep(self, simulator: Simulator, claim: "RunClaim", as_json: bool) -> Path:
        """Send the levels, print what they show, and return the folder of all."""
        levels, too_long = LevelLoad(self.load), self.endpoint.on_too_long
        with_images = self.body.images is not None
        endpoint = self.endpoint.for_prompts(levels.predicted_trace(), images=with_images)
        probed = endpoint.probe(self.url, self.body)
        check_times(probed, self.load.options(**self.how), self.slo, predicted=False)
        typer.echo(endpoint_line(probed), err=True)
        return sweep_levels(
            levels, probed, too_long, self.slo, simulator, claim, self.send, as_json
        )

    def send(
        self, requests: "Trace", load: LoadChoice, endpoint: "Endpoint", folder: Path
    ) -> "Run":
        """Send the requests of a level."""
        if endpoint.api == "embeddings":
            requests = without_outputs(requests)
        sending = load.options(**self.how)
        folder.mkdir(parents=True, exist_ok=True)
        test = LoadTest(requests, load, sending, folder, None, load.tokenizer())
        run, watch = test.of(endpoint)
        server_said(watch, run, folder)
        return run
