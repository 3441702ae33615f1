"""A load test: check everything, then send the load, once or in turns with a baseline."""

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path

import typer

from servetwin.app.reports.claims import render_gate
from servetwin.app.reports.load_test import LoadTestReport, as_sent, compared, gate_complaint
from servetwin.app.reports.progress import saved
from servetwin.app.scenario.options.endpoint import endpoint_line
from servetwin.app.scenario.options.load_test import LoadTestOptions
from servetwin.app.tasks.load_judges import Judges
from servetwin.app.tasks.report import require_plotly, write_html
from servetwin.app.tasks.sent_load import LoadTest, server_metrics_line
from servetwin.app.verdict.gate import judge
from servetwin.loadtest.endpoint import Endpoint
from servetwin.loadtest.plan.endpoint_limits import check_times, without_outputs
from servetwin.loadtest.run.event_loop import signals_deferred
from servetwin.sim.records.run import Run


def run(url: str, options: LoadTestOptions) -> None:
    """Send the load, or the levels of a sweep, to ``url``; report what clients saw."""
    if options.html:
        require_plotly()
    judges = Judges.of(options)
    stem = Path("runs") / time.strftime("loadtest-%Y%m%d-%H%M%S")
    if options.load.sweep.of:
        options.check_sweep()
        from servetwin.app.tasks.load_sweep import sweep_levels

        with options.overwriting.claimed_or_new(options.out, stem) as claim:
            place = sweep_levels(url, options, judges.limits, claim)
            if options.html:
                write_html([place], options.slo, options.html)
        return
    options.check_test()
    test = prepared(url, options, judges)
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
            code = self._report(run, place)
            if options.html:
                against = [options.against] if options.against else []
                write_html([place, *against], options.slo, options.html)
            if code:
                raise typer.Exit(code)

    def _report(self, run: Run, kept: Path) -> int:
        """Print the report and the verdict on a run, and return the exit code."""
        predicted, judges = self.predicted, self.judges
        comparison = compared(run, predicted) if predicted else None
        gate = judge(self.baselines, {str(kept): run}, judges.allowed) if self.baselines else None
        findings = judges.findings(run)
        report = LoadTestReport(run, kept, judges.limits, findings, comparison, gate)
        typer.echo(report.as_json() if judges.options.json else report.as_text())
        if predicted and not judges.options.json:
            typer.echo("\n" + as_sent(predicted, run, self.test.trace))
        wrong = report.complaint()
        if wrong is None:
            return 0
        typer.echo(f"servetwin: {wrong[0]}", err=True)
        return wrong[1]

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
        typer.echo(json.dumps(gate.as_dict()) if options.json else render_gate(gate))
        wrongs = [
            LoadTestReport(run, Path(at), None, self.judges.findings(run)).complaint()
            for at, run in sides[1].items()
        ]
        if wrong := next(filter(None, [*wrongs, gate_complaint(gate)]), None):
            typer.echo(f"servetwin: {wrong[0]}", err=True)
            raise typer.Exit(wrong[1])


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
    test = LoadTest(requests, load, sending, tokenizer, Path(), options.live)
    return SingleLoadTest(test, judges, predicted, baselines, endpoint, baseline)
