"""What a load test tells at its end: as text, as JSON, and why it failed."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from servetwin.app.reports.claims import render_comparison, render_gate, render_requests
from servetwin.app.reports.tables import sparkline_lines
from servetwin.app.verdict.claims import (
    EXIT_CODES,
    Comparison,
    Outcome,
    RequestDifferences,
    compare,
    compare_requests,
)
from servetwin.app.verdict.gate import Gate
from servetwin.app.verdict.resimulate import resimulate_as_sent
from servetwin.app.words import asset_table
from servetwin.loadtest.report.limits import Finding, failed_line
from servetwin.loadtest.report.load_notes import hint
from servetwin.loadtest.report.report import render_report
from servetwin.sim.records.metrics import SLO, measured
from servetwin.sim.records.run import Run
from servetwin.workloads.errors import ServetwinError
from servetwin.workloads.trace import Trace

Compared = tuple[Comparison, RequestDifferences]


def compared(run: Run, predicted: Run) -> Compared:
    """Compare the run with its prediction, as a whole and request by request."""
    return compare(predicted, [run]), compare_requests(predicted, run)


@dataclass(frozen=True, slots=True)
class LoadTestReport:
    """A load test that is saved in ``folder``, and what it is judged by."""

    run: Run
    folder: Path
    slo: SLO | None = None
    findings: Sequence[Finding] = ()
    prediction: Compared | None = None
    gate: Gate | None = None

    def as_text(self) -> str:
        """Return the report, its distributions, the comparison and the gate, if there are any."""
        sparklines = "\n".join(sparkline_lines(measured(self.run.requests)))
        blocks = [render_report(self.run, self.slo, self.folder), sparklines]
        if self.prediction:
            comparison, differences = self.prediction
            blocks += [render_comparison(comparison), render_requests(differences)]
        if self.gate:
            blocks.append(render_gate(self.gate))
        return "\n\n".join(blocks)

    def as_json(self) -> str:
        """Return the report as one JSON object."""
        report: dict[str, Any] = {
            **self.run.summary(self.slo),
            "run": str(self.folder),
            "scenario": self.run.scenario,
            "fail_if": [asdict(finding) for finding in self.findings],
        }
        if self.prediction:
            comparison, differences = self.prediction
            report["comparison"] = comparison.as_dict()
            report["unmatched"] = dict(differences.unmatched)
        if self.gate:
            report["gate"] = self.gate.as_dict()
        return json.dumps(report)

    def complaint(self) -> tuple[str, int] | None:
        """Return why the exit code is not 0, and the exit code; None where all is well."""
        delivered, requests = self.run.extra["delivered"], self.run.requests
        finished = int((requests["status"] == "finished").sum())
        ending = f"{finished} of {len(requests)} requests kept in {self.folder}"
        if delivered["interrupted"]:
            return f"interrupted: {ending}", 1
        if delivered["stopped"]:
            return f"stopped: {delivered['stopped']}; {ending}", 1
        if not finished:
            advice = hint(delivered["first_messages"])
            return "no request finished" + (f": {advice}" if advice else ""), 1
        if lost := delivered.get("lost_processes"):
            return f"{lost} of {delivered['processes']} processes of the load test died", 1
        if failed := failed_line(self.findings):
            return failed, 1
        if self.gate:
            return gate_complaint(self.gate)
        return _complaint("comparison", self.prediction[0].outcome) if self.prediction else None


def as_sent(predicted: Run, run: Run, trace: Trace) -> str:
    """Return the prediction again, on the send times that the load test recorded."""
    try:
        again, sent = resimulate_as_sent(predicted, run, trace)
    except ServetwinError as error:
        return f"not simulated again on the recorded send times: {error}"
    return "simulated again on the recorded send times\n" + render_comparison(
        compare(again, [sent])
    )


def gate_complaint(gate: Gate) -> tuple[str, int] | None:
    """Return why a gate does not hold, and the exit code; None where it holds."""
    return _complaint("gate", gate.outcome)


def _complaint(kind: str, outcome: Outcome) -> tuple[str, int] | None:

    sentence = asset_table("verdicts.yaml")["complaints"][kind].get(outcome)
    return sentence and (sentence, EXIT_CODES[outcome])
