"""A load test: check everything, then send the load, once or in turns with a baseline."""

import time
from dataclasses import dataclass, replace
from pathlib import Path

import typer

from servetwin.app.command import print_result
from servetwin.app.reports.claims import render_gate
from servetwin.app.reports.load_test import LoadTestReport, compared, complaint, run_rows
from servetwin.app.reports.progress import saved
from servetwin.app.scenario.options.endpoint import endpoint_line
from servetwin.app.scenario.options.load_test import LoadTestOptions
from servetwin.app.tasks.load_judges import Judges
from servetwin.app.tasks.report import end_with, keep_reports
from servetwin.app.tasks.sent_load import LoadTest, server_metrics_line
from servetwin.app.verdict.gate import judge
from servetwin.loadtest.endpoint import Endpoint
from servetwin.loadtest.plan.endpoint_limits import check_times, without_outputs
from servetwin.loadtest.run.event_loop import signals_deferred
from servetwin.sim.records.run import Run


def run(url: str, options: LoadTestOptions) -> None:
    """Send the load, or the levels of a sweep, to ``url``; report what clients saw."""
    stem = Path("runs") / time.strftime("loadtest-%Y%m%d-%H%M%S")
    if options.load.sweep.of:
        options.check_sweep()
        from servetwin.app.tasks.load_sweep import sweep_levels

        with options.overwriting.claimed_or_new(options.out, stem) as claim:
            sweep_levels(url, options, claim)
        return
    options.check_test()
    test = prepared(url, options, Judges.of(options))
    with options.overwriting.claimed_or_new(options.out, stem) as claim:
        test = replace(test, test=replace(test.test, folder=claim.begin()))
        if test.baseline:
            test.send_in_turns(test.baseline)
        else:
            test.send()


@dataclass(frozen=True, slots=True)
class SingleLoadTest:
    """A load that is ready to be sent to an endpoint, or to it and a ``baseline`` in turns."""

    test: LoadTest
    judges: Judges
    predicted: Run | None
    baselines: dict[str, Run]
    endpoint: Endpoint
    baseline: Endpoint | None

    def send(self) -> None:
        """Send the load, keep the run, and report it; end with its exit code."""
        options = self.judges.options
        run, watch = self.test.send_to(self.endpoint)
        with signals_deferred(), saved(run, self.test.folder) as place:
            typer.echo(server_metrics_line(watch, run, place), err=True)
            report = self._report(run, place)
            record, against = report.as_dict(), [options.against] if options.against else []
            print_result(options.json, record, [report.as_text()])
            keep_reports([place, *against], record, run_rows(run), self.judges.limits)
            end_with(report.verdict)

    def _report(self, run: Run, kept: Path) -> LoadTestReport:
        """Return the report on a run, with what it is compared with."""
        predicted, judges = self.predicted, self.judges
        comparison = compared(run, predicted) if predicted else None
        gate = judge(self.baselines, {str(kept): run}, judges.allowed) if self.baselines else None
        findings = judges.findings(run)
        return LoadTestReport(run, kept, judges.limits, findings, comparison, gate)

    def send_in_turns(self, baseline: Endpoint) -> None:
        """Send the load to both servers in turns, the baseline first and last: A/B/A. Judge it.

        The runs are in ``baseline/1``, ``run/1``, ``baseline/2`` ... of the folder of the test.
        Each has prompts of its own, so that no prefix cache favours the second run of a server.
        """
        options, sides = self.judges.options, (dict[str, Run](), dict[str, Run]())
        for turn in range(2 * options.turns + 1):
            side = turn % 2
            at = self.test.folder / ("baseline", "run")[side] / str(turn // 2 + 1)
            endpoint = (baseline, self.endpoint)[side].salted("turn", turn)
            run, watch = replace(self.test, folder=at).send_to(endpoint)
            with signals_deferred(), saved(run, at) as place:
                typer.echo(f"{place}: {server_metrics_line(watch, run, place)}", err=True)
                sides[side][str(place)] = run
            if run.extra["delivered"]["interrupted"]:
                typer.echo(f"servetwin: interrupted: the runs are in {self.test.folder}", err=True)
                raise typer.Exit(1)
        gate = judge(*sides, self.judges.allowed)
        print_result(options.json, gate.as_dict(), [render_gate(gate)])
        for name, run in sides[1].items():
            end_with(LoadTestReport(run, Path(name), None, self.judges.findings(run)).verdict)
        end_with(complaint("gate", gate.outcome))


def prepared(url: str, options: LoadTestOptions, judges: Judges) -> SingleLoadTest:
    """Read the load, ask the endpoints what they serve, and check that all fits together."""
    load = options.load
    sending, tokenizer, requests = options.sending(load), load.tokenizer(), load.trace()
    real_prompts = requests
    endpoint = options.probe(url, real_prompts)
    check_times(endpoint, sending, judges.limits, predicted=options.against is not None)
    if endpoint.api == "embeddings":
        requests = without_outputs(requests)
    requests = options.fitting(requests, endpoint)
    predicted = judges.prediction(requests, sending)
    baselines = judges.baselines(endpoint, requests, sending)
    other = options.baseline_url
    baseline = options.probe(other, real_prompts) if other else None
    for each in filter(None, (endpoint, baseline)):
        typer.echo(endpoint_line(each), err=True)
    test = LoadTest(requests, load, sending, tokenizer, Path(), options.live, options.gpu_metrics)
    return SingleLoadTest(test, judges, predicted, baselines, endpoint, baseline)
