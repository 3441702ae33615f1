"""What a load test tells at its end: as text, as JSON, and why it failed."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from servetwin.app.verdict.claims import Comparison, RequestDifferences
    from servetwin.app.verdict.gate import Gate
    from servetwin.loadtest.report.limits import Finding
    from servetwin.sim.records.metrics import SLO
    from servetwin.sim.records.run import Run
    from servetwin.workloads.trace import Trace

    Compared = tuple[Comparison, RequestDifferences]


def compared(run: "Run", predicted: "Run") -> "Compared":
    """Compare the run with its prediction, as a whole and request by request."""
    from servetwin.app.verdict.claims import compare, compare_requests

    return compare(predicted, [run]), compare_requests(predicted, run)


def as_text(
    run: "Run",
    slo: "SLO | None",
    folder: Path,
    found: "Compared | None",
    gate: "Gate | None" = None,
) -> str:
    """Return the report, its distributions, and the comparison and the gate where there are any."""
    from servetwin.app.reports.claims import render_comparison, render_gate, render_requests
    from servetwin.app.reports.tables import sparkline_lines
    from servetwin.loadtest.report.report import render_report
    from servetwin.sim.records.metrics import measured

    blocks = [render_report(run, slo, folder), "\n".join(sparkline_lines(measured(run.requests)))]
    if found:
        comparison, differences = found
        blocks += [render_comparison(comparison), render_requests(differences)]
    if gate:
        blocks.append(render_gate(gate))
    return "\n\n".join(blocks)


def as_json(
    run: "Run",
    slo: "SLO | None",
    folder: Path,
    findings: "Sequence[Finding]",
    found: "Compared | None",
    gate: "Gate | None" = None,
) -> str:
    """Return the report as one JSON object."""
    answer: dict[str, Any] = {**run.summary(slo), "run": str(folder), "scenario": run.scenario}
    answer["fail_if"] = [asdict(finding) for finding in findings]
    if found:
        comparison, differences = found
        answer["comparison"] = comparison.as_dict()
        answer["unmatched"] = dict(differences.unmatched)
    if gate:
        answer["gate"] = gate.as_dict()
    return json.dumps(answer)


def as_sent(predicted: "Run", run: "Run", trace: "Trace") -> str:
    """Return the prediction again, on the send times that the load test recorded."""
    from servetwin.app.reports.claims import render_comparison
    from servetwin.app.verdict.resimulate import resimulate_as_sent
    from servetwin.workloads.errors import ServetwinError

    try:
        again = resimulate_as_sent(predicted, run, trace)
    except ServetwinError as error:
        return f"not simulated again on the recorded send times: {error}"
    return "simulated again on the recorded send times\n" + render_comparison(again.comparison)


def complaint(
    run: "Run",
    folder: Path,
    findings: "Sequence[Finding]",
    found: "Compared | None" = None,
    gate: "Gate | None" = None,
) -> tuple[str, int] | None:
    """Return why the exit code is not 0, and the exit code; None where all is well."""
    from servetwin.app.verdict.claims import EXIT_CODES
    from servetwin.loadtest.report.limits import failed_line
    from servetwin.loadtest.report.load_notes import hint

    delivered = run.extra["delivered"]
    finished, total = int((run.requests["status"] == "finished").sum()), len(run.requests)
    kept = f"{finished} of {total} requests kept in {folder}"
    if delivered["interrupted"]:
        return f"interrupted: {kept}", 1
    if delivered["stopped"]:
        return f"stopped: {delivered['stopped']}; {kept}", 1
    if not finished:
        advice = hint(delivered["first_messages"])
        return "no request finished" + (f": {advice}" if advice else ""), 1
    if lost := delivered.get("lost_processes"):
        return f"{lost} of {delivered['processes']} processes of the load test died", 1
    if failed := failed_line(findings):
        return failed, 1
    if gate:
        return gate_complaint(gate)
    outcome = found[0].outcome if found else "holds"
    said = {
        "refuted": "the prediction is refuted",
        "cannot tell": "this load test cannot tell whether the prediction holds",
    }
    return (said[outcome], EXIT_CODES[outcome]) if outcome in said else None


def gate_complaint(gate: "Gate") -> tuple[str, int] | None:
    """Return why a gate does not hold, and the exit code; None where it holds."""
    from servetwin.app.verdict.claims import EXIT_CODES

    said = {
        "refuted": "the run is worse than the baseline by more than is allowed",
        "cannot tell": "these load tests cannot tell whether the run is as good as the baseline",
    }
    outcome = gate.outcome
    return (said[outcome], EXIT_CODES[outcome]) if outcome in said else None
