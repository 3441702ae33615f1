"""What ``servetwin loadtest`` judges a load test by: SLO, conditions, prediction, baseline."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from servetwin.app.reports.load_test import LoadTestReport, as_sent, compared
from servetwin.app.scenario.options.common import GateOptions
from servetwin.workloads.errors import LoadTestError

if TYPE_CHECKING:
    from servetwin.loadtest.endpoint import Endpoint
    from servetwin.loadtest.report.limits import FailCondition, Finding
    from servetwin.loadtest.run.client import LoadOptions
    from servetwin.sim.records.metrics import SLO
    from servetwin.sim.records.run import Run
    from servetwin.workloads.trace import Trace


@dataclass(frozen=True, slots=True)
class Judges:
    """What a load test is judged by; all options are read before a load is sent.

    ``limits`` are the limits of the SLO, ``conditions`` what fails a load test in any case, and
    ``allowed`` says by metric how much worse than the baseline it may be.
    """

    gate: GateOptions
    against: Path | None
    baseline_url: str | None
    slo: str | None
    limits: "SLO | None"
    conditions: "list[FailCondition]"
    allowed: Mapping[str, float]

    @classmethod
    def parsed(
        cls, gate: GateOptions, against: Path | None, baseline_url: str | None, slo: str | None
    ) -> "Judges":
        """Read the options; raises ``LoadTestError`` where one cannot be read."""
        from servetwin.loadtest.report.limits import parse_slo

        limits = parse_slo(slo) if slo else None
        return cls(
            gate, against, baseline_url, slo, limits, gate.fail_conditions(slo), gate.limits()
        )

    @property
    def comparisons(self) -> Mapping[str, object]:
        """The options that say what the load test is compared with: one of them at most."""
        return {
            "--against": self.against,
            "--baseline": self.gate.baseline,
            "--baseline-url": self.baseline_url,
        }

    @property
    def given(self) -> Mapping[str, object]:
        """Every option but the SLO, with its value."""
        return {**self.comparisons, "--allow": self.gate.allow, "--fail-if": self.gate.fail_if}

    def require_one(self, html: Path | None, endless: bool) -> None:
        """Raise ``LoadTestError`` where options contradict each other.

        ``endless`` says that users send until the time is over.
        """
        given = [name for name, value in self.comparisons.items() if value]
        if len(given) > 1:
            raise LoadTestError(f"{given[0]} and {given[1]} exclude each other: give one")
        if self.gate.allow and given in ([], ["--against"]):
            raise LoadTestError(
                "--allow is of a baseline: give --baseline or --baseline-url as well"
            )
        if html and self.baseline_url:
            raise LoadTestError(
                "--html and --baseline-url: there are several runs; servetwin report OUT"
            )
        if endless and (self.gate.baseline or self.baseline_url):
            raise LoadTestError(
                "--baseline: users that send until --duration send as many as the server is fast; "
                "give --limit N, so that both have the same requests"
            )

    def references(self, endpoint: "Endpoint", trace: "Trace", load: "LoadOptions") -> "References":
        """Return the runs to compare with; another load is refused before a request is sent."""
        return References(
            trace,
            _prediction(self.against, trace, load),
            _baselines(self.gate, endpoint, trace, load),
        )

    def findings(self, run: "Run") -> "list[Finding]":
        """Return what was found for each condition."""
        from servetwin.loadtest.report.limits import judge_conditions

        return judge_conditions(self.conditions, run, self.limits)

    def report(self, run: "Run", kept: Path, references: "References", json: bool) -> int:
        """Print the report and the verdict on a run, and return the exit code."""
        from servetwin.app.verdict.gate import judge

        predicted, baselines = references.predicted, references.baselines
        prediction = compared(run, predicted) if predicted else None
        gate = judge(baselines, {str(kept): run}, self.allowed) if baselines else None
        report = LoadTestReport(run, kept, self.limits, self.findings(run), prediction, gate)
        typer.echo(report.as_json() if json else report.as_text())
        if predicted and not json:
            typer.echo("\n" + as_sent(predicted, run, references.trace))
        wrong = report.complaint()
        if wrong is None:
            return 0
        typer.echo(f"servetwin: {wrong[0]}", err=True)
        return wrong[1]


@dataclass(frozen=True, slots=True)
class References:
    """The runs that a load test of ``trace`` is compared with: a prediction, or baselines."""

    trace: "Trace"
    predicted: "Run | None"
    baselines: "dict[str, Run]"


def _baselines(
    gate: GateOptions, endpoint: "Endpoint", trace: "Trace", load: "LoadOptions"
) -> "dict[str, Run]":
    """Return the runs of the baseline; another load is refused before anything is sent."""
    from servetwin.app.reports.report_folders import runs_by_folder
    from servetwin.app.verdict.same_load import check_same_load, require_same_settings
    from servetwin.loadtest.run.client import load_scenario

    scenario = load_scenario(endpoint, trace, load, len(trace))
    baselines = {str(at): run for at, run in runs_by_folder(gate.baseline).items()}
    for name, run in baselines.items():
        if run.kind != "loadtest":
            raise LoadTestError(f"--baseline {name}: a simulation; --against judges a prediction")
        require_same_settings("this load test", scenario, f"--baseline {name}", run.scenario)
        check_same_load(
            run, trace, closed_loop=load.follows(trace), option="--baseline", other=name
        )
    return baselines


def _prediction(against: Path | None, trace: "Trace", load: "LoadOptions") -> "Run | None":
    """Return the prediction to compare with; a wrong one is refused before anything is sent."""
    from servetwin.app.verdict.same_load import check_same_load
    from servetwin.sim.records.run import load_run

    if against is None:
        return None
    if load.cancellation:
        raise LoadTestError("--against and --cancel: no simulated client hangs up; leave one out")
    if load.endless:
        raise LoadTestError(
            "--against: users that send until --duration send as many as the server is fast, and a "
            "prediction is of requests that are known; give --limit N"
        )
    predicted = load_run(against)
    check_same_load(predicted, trace, closed_loop=load.follows(trace))
    predicted.requests["warm_up"] = predicted.requests["scheduled_s"] < load.warm_up_s
    return predicted
