"""Load tests of one endpoint at many levels, in one folder."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import typer

from servetwin.app.command import print_result
from servetwin.app.reports.level_sweep import level_line, level_rows, sweep_lines, sweep_verdict
from servetwin.app.reports.progress import progress, saved
from servetwin.app.scenario.options.endpoint import endpoint_line
from servetwin.app.scenario.options.load import GENERATED_REQUESTS, NO_SWEEP, LoadChoice
from servetwin.app.scenario.options.load_test import LoadTestOptions
from servetwin.app.scenario.options.policy import ClusterOptions
from servetwin.app.scenario.scenarios import build_scenario
from servetwin.app.tasks.report import end_with, keep_reports
from servetwin.app.tasks.sent_load import LoadTest, server_metrics_line
from servetwin.loadtest.endpoint import Endpoint
from servetwin.loadtest.plan.endpoint_limits import check_times, without_outputs
from servetwin.loadtest.report.limits import WANTED, parse_target
from servetwin.loadtest.report.load_notes import failure_words, lengths_words, why_cut_off
from servetwin.loadtest.run.event_loop import signals_deferred
from servetwin.loadtest.sweep.knee import Knee
from servetwin.loadtest.sweep.level import Level, LevelPlan, measured_level
from servetwin.loadtest.sweep.run_sweep import run_sweep
from servetwin.loadtest.sweep.sweep import NONE_FINISHED, Sweep, SweepSettings
from servetwin.sim.experiments.capacity import Replications, SLOTarget, all_at_once, find_capacity
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.records.metrics import SLO
from servetwin.sim.records.run import machine_facts
from servetwin.sim.records.run_claim import RunClaim
from servetwin.workloads.errors import EndedEarly, LoadTestError
from servetwin.workloads.trace import Trace

# Simulated engines behind the interval of the predicted knee.
REPLICATIONS = 10
# Of one user: alone, requests take the same time again and again.
SYNCHRONOUS_REQUESTS = 20
ARRIVALS = "poisson"
# A generated load of fewer requests says little of the knee that is predicted for it.
LEAST_PREDICTED = 2000


@dataclass(frozen=True, slots=True)
class LevelLoad:
    """The load of every level: the same trace at other rates, or requests drawn anew.

    ``choice`` is the load of the command line with its sweep.
    """

    choice: LoadChoice

    @property
    def requests(self) -> int | None:
        """The number of requests of a level; None for all of a trace."""
        generated = GENERATED_REQUESTS if self.choice.path is None else None
        return self.choice.sweep.requests or generated

    def of(self, plan: LevelPlan) -> LoadChoice:
        """Return the load of a level, as if it stood on the command line."""
        changes = {"limit": plan.requests or self.requests, "seed": self._seed(plan)}
        return replace(self.choice, sweep=NO_SWEEP, **{**changes, **self._changes(plan)})

    def trace(self, plan: LevelPlan) -> Trace:
        """Read or generate the requests of a level."""
        trace = self.of(plan).trace()
        return all_at_once(trace) if plan.kind == "throughput" else trace

    def predicted_trace(self) -> Trace:
        """Return the requests for which the simulator searches its own knee."""
        count, rate_per_s = self.requests, None
        if self.choice.path is None:
            count, rate_per_s = max(LEAST_PREDICTED, count or 0), 1.0
        return replace(
            self.choice, sweep=NO_SWEEP, arrivals=self._arrivals, rate_per_s=rate_per_s, limit=count
        ).trace()

    def _changes(self, plan: LevelPlan) -> Mapping[str, Any]:
        """Return what differs from the load of the command line at this level."""
        if plan.kind == "rate":
            return {"rate_per_s": plan.rate_per_s, "arrivals": self._arrivals}
        closed = {"concurrency": plan.users, "closed_loop": None, "arrivals": None}
        if plan.kind == "users":
            return closed
        end: Mapping[str, Any] = {"warm_up_s": 0.0, "ramp_up_s": 0.0, "think_time": None}
        if plan.kind == "throughput":
            rate_per_s = None if self.choice.path else 1.0
            return {**end, "rate_per_s": rate_per_s, "arrivals": self._arrivals}
        return {**end, **closed, "limit": plan.requests or SYNCHRONOUS_REQUESTS, "loop": 1}

    @property
    def _arrivals(self) -> str | None:
        return None if self.choice.path else self.choice.arrivals or ARRIVALS

    def _seed(self, plan: LevelPlan) -> int:
        """Return a seed of the level: generated levels are independent of each other."""
        if self.choice.path is not None:
            return self.choice.seed
        return crc32(f"{self.choice.seed}/{plan.number}".encode())


@dataclass(frozen=True, slots=True)
class LevelTests:
    """The load tests of a sweep; ``scenario`` predicts them, where a profile is given."""

    options: LoadTestOptions
    load: LevelLoad
    endpoint: Endpoint
    scenario: Scenario | None
    folder: Path

    def requests(self, plan: LevelPlan) -> Trace:
        """Return the requests of a level that fit into the server's context."""
        return self.options.fitting(self.load.trace(plan), self.endpoint)

    def measure(self, plan: LevelPlan, attempt: int, slo: SLO | None) -> Level:
        """Send a level, keep its run, and return what it measured and what was predicted."""
        typer.echo(f"level {plan.number}: {plan.load}", err=True)
        requests, load = self.requests(plan), self.load.of(plan)
        at = self.folder / plan.folder
        sent = without_outputs(requests) if self.endpoint.api == "embeddings" else requests
        test = LoadTest(sent, load, self.options.sending(load), load.tokenizer(), at)
        test = replace(test, gpus=self.options.gpu_metrics)
        run, watch = test.send_to(self.endpoint.salted("level", plan.number, attempt))
        server_metrics_line(watch, run, at)
        with signals_deferred(), saved(run, at):
            delivered = run.extra["delivered"]
        if reason := why_cut_off(delivered):
            raise EndedEarly(f"{reason}, at {plan.load}, which does not count")
        if not (run.requests["status"] == "finished").any():
            why = failure_words(delivered["first_messages"])
            raise EndedEarly(f"{NONE_FINISHED} at {plan.load}{why}")
        predicted = None
        if self.scenario is not None:
            predicted = run_once(requests, self.scenario, seed=load.seed)
            predicted.requests["warm_up"] = predicted.requests["scheduled_s"] < load.warm_up_s
        level = measured_level(plan, run, slo, attempt, predicted)
        typer.echo(level_line(level), err=True)
        return level

    def predicted_knee(self, settings: SweepSettings) -> Knee | None:
        """Return the simulated capacity for the SLO.

        None without a profile or an SLO, or where the levels have no rate.
        """
        load, slo = self.options.load, settings.slo
        if self.scenario is None or slo is None or settings.of == "users":
            return None
        trace = self.options.fitting(self.load.predicted_trace(), self.endpoint)
        with progress("predicting the knee, replications", total=REPLICATIONS) as advance:
            capacity = find_capacity(
                trace, self.scenario, SLOTarget(slo, settings.wanted),
                seed=load.seed, replications=Replications(REPLICATIONS, on_replication=advance),
            )  # fmt: skip
        rate = capacity.rate_per_s
        if capacity.replications < 2:
            return Knee(rate.value, None, None)
        return Knee(rate.value, rate.low, rate.high)

    def about(self, trace: Trace) -> Mapping[str, Any]:
        """Describe what is swept."""
        profiles = self.options.servers.profile
        lengths = [(request.prompt_tokens, request.output_tokens) for request in trace]
        return {
            "base_url": self.endpoint.base_url,
            "model": self.endpoint.model,
            "api": f"{self.endpoint.dialect} {self.endpoint.api}",
            "lengths": lengths_words(*zip(*lengths, strict=True)),
            "machine": machine_facts(),
            "prompt_salt": self.endpoint.salt,
            "trace": trace.source,
            "real_prompts": any(request.prompt is not None for request in trace),
            "load": self.options.load.record(),
            **({"profile": list(profiles)} if profiles else {}),
        }


def sweep_levels(url: str, options: LoadTestOptions, claim: RunClaim) -> None:
    """Send the levels of a sweep, print and keep what they show, and end with its exit code."""
    attainment = options.load.sweep.attainment
    slo, wanted = parse_target(options.slo, attainment) if options.slo else (None, attainment)
    load, folder, levels = options.load, claim.folder, LevelLoad(options.load)
    likely, budget = levels.predicted_trace(), load.sweep.stopping_rule()
    typer.echo(f"load test after load test, for about {budget} (--sweep-budget)", err=True)
    endpoint = options.probe(url, likely)
    check_times(endpoint, options.sending(load), slo, predicted=False)
    typer.echo(endpoint_line(endpoint), err=True)
    scenario = None
    if options.servers.profile:
        if load.cancel:
            raise LoadTestError("--profile and --cancel: no simulated client hangs up; give one")
        servers = options.servers.servers()
        scenario = build_scenario(likely, servers, options.policy, ClusterOptions())
    tests = LevelTests(options, levels, endpoint.salted("sweep"), scenario, folder)
    first = tests.requests(LevelPlan(0, "throughput"))
    settings = load.sweep.settings(len(first), slo, wanted or WANTED)
    predicted = tests.predicted_knee(settings)
    sweep = Sweep(settings, predicted=predicted, about=tests.about(first))
    typer.echo(f"levels of {len(first)} requests: {sweep.about['lengths']}", err=True)

    def keep(state: Sweep) -> None:
        state.save(folder)

    claim.begin()
    keep(sweep)
    sweep = run_sweep(sweep, budget, tests.measure, keep)
    with saved(sweep, folder) as place:
        verdict = sweep_verdict(sweep)
        record = {**verdict.as_dict(), **sweep.as_dict(), "folder": str(place)}
        print_result(options.json, record, [*sweep_lines(sweep), f"files: {place}"])
        with signals_deferred():
            keep_reports([place], record, level_rows(sweep), slo)
    end_with(verdict)
