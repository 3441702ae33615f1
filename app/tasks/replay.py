"""Replay a trace under a policy, or two policies beside each other, and print the figures."""

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from servetwin.app.command import print_result
from servetwin.app.reports import tables
from servetwin.app.reports.progress import progress, saved_if_asked
from servetwin.app.reports.run_words import outside_warning, provenance_line
from servetwin.app.scenario.options.common import RunChart
from servetwin.app.scenario.options.deployment import Deployment
from servetwin.app.scenario.options.policy import PolicyOptions, ScenarioOptions
from servetwin.app.scenario.options.simulations import ReplayOptions, RunOptions
from servetwin.app.scenario.prices import Prices
from servetwin.app.scenario.scenarios import (
    build_scenario,
    fit_to_trace,
    repeats_note,
    scenario_record,
)
from servetwin.app.scenario.servers import Servers
from servetwin.app.words import in_brackets, origin_words, print_notes
from servetwin.sim.experiments import predict
from servetwin.sim.experiments.scenario import Scenario, devices, devices_of
from servetwin.sim.records.metrics import FIGURES, SLO, common
from servetwin.sim.records.run import Run, machine_facts
from servetwin.workloads.errors import PolicyError, ServetwinError
from servetwin.workloads.files import require_there
from servetwin.workloads.trace import Trace

if TYPE_CHECKING:
    from servetwin.app.reports.html.picture_file import PictureFile
    from servetwin.app.scenario.files.scenario_file import ScenarioFile

# The figures of an interval by metric.
Intervals = dict[str, dict[str, float]]

AUTO_REPLICATION_BUDGET_S = 5.0
AUTO_REPLICATIONS = 10
_METRICS = (*FIGURES, "output_throughput_tokens_per_s")


@dataclass(frozen=True, slots=True)
class Replay:
    """A scenario file under the options of the command line, which win over it."""

    file: "ScenarioFile | None"
    options: ScenarioOptions
    replayed: ReplayOptions

    @classmethod
    def read(
        cls, options: ScenarioOptions, replayed: ReplayOptions, trace: Path | None
    ) -> "Replay":
        """Read the scenario file; raises ``ServetwinError`` where it, TRACE or a server is
        missing."""
        if trace is not None:
            require_there(trace)
        file = None
        if replayed.scenario:
            from servetwin.app.scenario.files.scenario_file import read_scenario

            file = read_scenario(replayed.scenario)
        seed = replayed.seed if replayed.seed is not None else file.seed if file else 0
        replay = cls(file, options.with_trace(trace, seed), replayed)
        if file or trace:
            replay.servers().require_named(f"{replayed.scenario}: " if file else "")
        return replay

    @property
    def seed(self) -> int:
        """The seed of every random stream."""
        return self.options.trace.seed

    @property
    def slo(self) -> SLO | None:
        """The limits of the file."""
        return self.file.slo.slo() if self.file else None

    def servers(self) -> Deployment:
        """Return the servers of the file under those of the options, which win."""
        servers, file = self.options.servers, self.file
        named = file is not None and "deployment" in file.model_fields_set
        return servers.over(file.deployment) if file and named else servers

    def base(self) -> Servers:
        """Return the servers with the policies and cluster of the file."""
        servers = self.servers().servers(self.options.cluster.device_link())
        return self.file.servers(servers) if self.file else servers

    def policies(self) -> PolicyOptions:
        """Return the policy options; a model length of the file does not grow with the trace."""
        policy = self.options.policy
        in_file = self.file.policies.get("max_model_len") if self.file else None
        return replace(policy, max_model_len=policy.max_model_len or in_file)

    def requests(self) -> Trace:
        """Return the trace; where the file names one, as many requests at the rate of the file.

        Raises ``TraceError`` where there is neither trace nor workload.
        """
        trace = self.options.trace
        if trace.path is None and self.file is not None:
            return trace.transform(self.file.workload.trace(trace.seed))
        if self.file is None or not self.file.workload.is_uploaded:
            return trace.read()
        workload = self.file.workload
        rate_per_s = trace.rate_per_s or (None if trace.rate_scale else workload.rate_per_s)
        limit = workload.requests if trace.limit is None else trace.limit
        columns = trace.columns or workload.columns
        recorded = replace(trace, limit=limit, rate_per_s=rate_per_s, columns=columns).read()
        return workload.with_prefixes(recorded, trace.seed)

    def redraw(self, scenario: Scenario) -> predict.Redraw | None:
        """Return draws of a generated workload with other seeds; None for a recorded one."""
        options = self.options.trace
        if self.file is None or options.path or not self.file.workload.is_generated:
            return None
        workload, settings = self.file.workload, self.policies().changes()

        def draw(seed: int) -> tuple[Trace, Scenario]:
            trace = options.transform(workload.trace(seed))
            config, _ = fit_to_trace(scenario.policies, trace, settings)
            return trace, replace(scenario, policies=config)

        return draw

    def scenario(self, trace: Trace, compared: str | None = None) -> Scenario:
        """Return the scenario for a trace; ``compared`` policies win."""
        cluster = self.options.cluster
        scenario = build_scenario(trace, self.base(), self.policies(), cluster, compared)
        return replace(scenario, check=self.replayed.full_check)

    def replay(
        self, single: RunOptions, plotted: "PictureFile | None", chart: RunChart | None
    ) -> None:
        """Simulate the trace, keep the run, print and draw it."""
        options = self.replayed
        if single.csv and options.out is None:
            raise ServetwinError("--csv: give --out, the folder for it")
        trace = self.requests()
        scenario = self.scenario(trace)
        if single.energy:
            predict.require_energy(scenario)
        with options.overwriting.claimed_if_asked(options.out) as claim:
            with progress(f"simulating {scenario.name}", total=len(trace)) as advance:
                run = predict.run_once(
                    trace, scenario, seed=self.seed, macro=not options.step_by_step,
                    keep_usage=single.kv_usage, on_arrival=advance,
                )  # fmt: skip
            run.scenario = scenario_record(trace, scenario, self.servers().settings(), self.seed)
            run.meta, run.as_csv = machine_facts(), single.csv
            if fleet := run.extra.get("fleet"):
                from servetwin.sim.experiments.fleet import least_replica_hours

                fleet["least_replica_hours"] = least_replica_hours(trace, scenario)
                hours: Counter[str] = Counter()
                for server, paid in zip(scenario.servers(), fleet["hours_by_replica"], strict=True):
                    device, count = devices_of(server)
                    hours[device] += count * paid
                fleet["price"] = Prices().over_listed().per_hour(hours)
            if not len(run.table("steps")["steps"]):
                reason = tables.error_lines(run.table("requests")["error"], 1)[0]
                raise PolicyError(f"no step was run: {reason.strip()}")
            energy = predict.run_energy(run, scenario) if single.energy else None
            if energy:
                run.extra["energy"] = asdict(energy)
            with saved_if_asked(run, claim.begin() if claim else None) as folder:
                intervals = self._intervals(trace, scenario, run, single.replications)
                if folder and intervals:  # the run itself was kept before the replications
                    run.extra["intervals"] = intervals
                    run.save(folder)
                self._print(scenario, run, intervals, folder, energy)
        print_notes([repeats_note(scenario.policies, trace, self.options.policy)])
        if plotted:
            self._draw(plotted, chart, {scenario.name: run})

    def compare(
        self,
        names: tuple[str, str],
        replications: int | None,
        plotted: "PictureFile | None",
        chart: RunChart | None,
    ) -> None:
        """Simulate the trace under two policies, print how they differ, and draw both."""
        from servetwin.app.reports.comparison import print_comparison

        options, trace = self.replayed, self.requests()
        named = [(name, self.scenario(trace, name)) for name in names]
        record = self.servers().settings()
        with options.overwriting.claimed_if_asked(options.out) as claim:
            runs = print_comparison(
                trace, named, record, self.seed, replications, claim, options.as_json
            )
        if plotted:
            a, b = names
            names = (a, b) if a != b else (f"A: {a}", f"B: {b}")
            self._draw(plotted, chart, dict(zip(names, runs, strict=True)))

    def _intervals(
        self, trace: Trace, scenario: Scenario, run: Run, replications: int | None
    ) -> Intervals:
        """Return the intervals of the metrics; as many replications as few seconds allow."""
        if replications is None:
            wall_s = run.extra["simulation"]["wall_s"] * AUTO_REPLICATIONS
            replications = AUTO_REPLICATIONS if wall_s < AUTO_REPLICATION_BUDGET_S else 0
        redraw = self.redraw(scenario)
        if replications < 2 or (scenario.is_repeatable() and not redraw):
            return {}  # a single draw is no interval
        from servetwin.sim.experiments.parallel_map import begin_as_copies, map_on_processes

        outside = predict.is_outside(run)

        def one(number: int) -> dict[str, Any]:
            return predict.replication(
                trace, scenario, number, seed=self.seed, extrapolate=outside, redraw=redraw
            ).summary()

        cores = os.cpu_count() or 1 if begin_as_copies() else 1
        found = map_on_processes(one, range(replications), cores)
        summaries = [summary for _, summary in sorted(found, key=itemgetter(0))]
        intervals = {
            metric: predict.interval(summaries, metric) for metric in common(_METRICS, summaries)
        }
        return {
            metric: {
                "median": i.value, "p5": i.low, "p95": i.high, "standard_error": i.standard_error,
            }
            for metric, i in intervals.items()
            if i
        }  # fmt: skip

    def _print(
        self,
        scenario: Scenario,
        run: Run,
        intervals: Intervals,
        folder: Path | None,
        energy: predict.Energy | None,
    ) -> None:
        summary = run.summary(self.slo)
        if warning := outside_warning(summary["provenance"], widened=bool(intervals)):
            typer.echo(warning, err=True)
        lines = [
            *tables.scenario_lines(run.scenario["trace"], scenario, run.scenario),
            *tables.note_lines(run.scenario["notes"]),
            tables.counts_line(summary["requests"]),
            *tables.error_lines(run.table("requests")["error"]),
            "",
            *tables.latency_table(summary, intervals),
            "",
            *tables.steady_lines(summary["steady"]),
            *tables.task_lines(summary, sum(devices(scenario).values())),
            *tables.fleet_lines(summary),
            "",
            "",
            *tables.totals_lines(summary),
            *([_energy_line(energy)] if energy else []),
            provenance_line(summary["provenance"]),
        ]
        if scenario.is_certain():
            origins = origin_words(scenario.origins)
            lines.append(f"step times {origins}: their error is unknown")
        elif not intervals:
            lines.append("no intervals (off, or the run is long): --replications 10")
        record = {**summary, "intervals": intervals, **run.scenario}
        kept = [f"run folder: {folder}"] if folder else []
        print_result(self.replayed.as_json, record, [*lines, *kept])

    def _draw(
        self, plotted: "PictureFile", chart: RunChart | None, runs: Mapping[str, Run]
    ) -> None:
        from servetwin.app.reports.html.picture_file import draw_runs
        from servetwin.app.reports.report_folders import NamedRun

        named = [NamedRun(name, run) for name, run in runs.items()]
        typer.echo(draw_runs(plotted, chart, named, self.slo), err=self.replayed.as_json)


def _energy_line(energy: predict.Energy) -> str:
    """Return joules of an output token and mean watts, and what was never measured."""
    never = f"; never measured: {', '.join(energy.unmeasured)}" if energy.unmeasured else ""
    per_token = in_brackets(energy.joules_per_token, " J per output token")
    return f"energy {per_token}, {in_brackets(energy.mean_watts, ' W')}{never}"
