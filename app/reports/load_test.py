"""What a load test tells at its end, its verdict first: as text and as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from servetwin.app.reports import claims, tables
from servetwin.app.reports.html.facts import slo_line
from servetwin.app.reports.report_folders import NamedRun
from servetwin.app.reports.run_words import what_ran
from servetwin.app.reports.table import wrapped
from servetwin.app.verdict.claims import (
    Comparison,
    Outcome,
    RequestDifferences,
    compare,
    compare_requests,
)
from servetwin.app.verdict.gate import Gate
from servetwin.app.words import asset_table, number
from servetwin.loadtest.report import load_notes
from servetwin.loadtest.report.limits import DEFAULT, Finding, failed_line
from servetwin.sim.records.metrics import SLO
from servetwin.sim.records.run import Run
from servetwin.sim.records.steady_part import WHOLE_RUN

Compared = tuple[Comparison, RequestDifferences]
Word = Literal["PASS", "FAIL", "CANNOT TELL", "CUT OFF"]
_WORDS: Mapping[Outcome, Word] = {"refuted": "FAIL", "cannot tell": "CANNOT TELL"}
_LEGEND = asset_table("words.yaml")["latencies"]
# Conditions that no late client explains.
_OF_FAILURES = ("failed", "finished")


@dataclass(frozen=True, slots=True)
class LoadVerdict:
    """Whether a load test is inside its limits, and why in a sentence."""

    word: Word
    reason: str

    def __str__(self) -> str:
        return f"{self.word}: {self.reason}"

    @property
    def exit_code(self) -> int:
        """0 inside its limits, 1 where one is missed or the test was cut off, 3 unknown."""
        return {"PASS": 0, "FAIL": 1, "CUT OFF": 1, "CANNOT TELL": 3}[self.word]

    def as_dict(self) -> dict[str, str]:
        """Return the beginning of the JSON."""
        return {"verdict": self.word, "reason": self.reason}


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
        """Return verdict and report, the comparison and the gate, if there are any."""
        report = render_report(self.run, self.slo, self.folder)
        blocks = ["\n".join(wrapped([str(self.verdict)], "  ")), report]
        if self.prediction:
            comparison, differences = self.prediction
            blocks += [claims.render_comparison(comparison), claims.render_requests(differences)]
        if self.gate:
            blocks.append(claims.render_gate(self.gate))
        return "\n\n".join(blocks)

    def as_dict(self) -> dict[str, Any]:
        """Return the report for JSON."""
        report: dict[str, Any] = {
            **self.verdict.as_dict(),
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
        return report

    @property
    def verdict(self) -> LoadVerdict:
        """The verdict: of the run itself, then of its limits, its baseline and its prediction."""
        delivered, requests = self.run.extra["delivered"], self.run.requests
        finished = int((requests["status"] == "finished").sum())
        ending = f"{finished} of {len(requests)} requests kept in {self.folder}"
        if why := load_notes.why_cut_off(delivered):
            return LoadVerdict("CUT OFF", f"{why}; {ending}")
        if not finished:
            why = load_notes.failure_words(delivered["first_messages"])
            return LoadVerdict("FAIL", f"no request finished{why}")
        if lost := delivered.get("lost_processes"):
            died = f"{lost} of {delivered['processes']} processes of the load test died"
            return LoadVerdict("CUT OFF", died)
        if failed := failed_line(self.findings):
            return self._missed(failed, delivered.get("limited_by"))
        worse = complaint("gate", self.gate.outcome) if self.gate else None
        if self.prediction:  # A load test has one or the other.
            worse = complaint("comparison", self.prediction[0].outcome)
        figures = [one.said for one in self.findings if one.condition != DEFAULT.text]
        held = "; ".join([f"{finished} of {len(requests)} requests finished", *figures])
        return worse or LoadVerdict("PASS", held)

    def _missed(self, failed: str, limited_by: Sequence[str] | None) -> LoadVerdict:
        """Return the verdict on missed limits: latencies of a late client say nothing."""
        missed = [finding.condition for finding in self.findings if finding.failed]
        if not limited_by or any(text.startswith(_OF_FAILURES) for text in missed):
            return LoadVerdict("FAIL", failed)
        return LoadVerdict("CANNOT TELL", f"{failed}; the client was late ({limited_by[0]})")


def run_rows(run: Run) -> pd.DataFrame:
    """Return the figures of a run for a CSV: a row per metric, and one per total."""
    rows = [{"metric": name, **of} for name, of in tables.described(run)[WHOLE_RUN].items()]
    total = "output_throughput_tokens_per_s"
    return pd.DataFrame([*rows, {"metric": total, "mean": run.summary()[total]}])


def render_report(run: Run, slo: SLO | None = None, folder: Path | None = None) -> str:
    """Return doubts, the metrics, the load and how it was delivered, the failures, the files."""
    summary, figures = run.summary(slo), tables.described(run)[WHOLE_RUN]
    doubts = wrapped(load_notes.load_warnings(summary["delivered"]), "  ")
    soft = [f"* fewer than {tables.FIRM_P99} values: not a firm p99"]
    delivered = load_notes.delivered_line(summary["delivered"])
    sent = [what_ran(run), *load_notes.load_facts(run), delivered, *load_notes.load_notes(run)]
    lines = [
        *doubts,
        *([""] if doubts else []),
        *tables.latency_table(figures, {}, figures, soft="*"),
        *(soft if any(map(tables.is_soft, figures.values())) else []),
        f"output throughput {number(summary['output_throughput_tokens_per_s'], 1.0)} tokens/s, "
        f"{number(summary['request_throughput_per_s'], 1.0)} requests/s over "
        f"{summary['makespan_s']:.2f} s; {summary['output_tokens']} tokens out, "
        f"{summary['prompt_tokens']} in",
        *tables.reasoning_lines(summary, slo),
        "",
        *wrapped(sent, "  "),
        "",
        *tables.steady_lines(summary["steady"]),
        "",
        tables.counts_line(summary["requests"]),
        *tables.task_lines(summary),
        *load_notes.outcome_lines(run),
        *([slo_line([NamedRun("", run)], slo)] if slo else []),
        *tables.note_lines(run.scenario["notes"]),
        *([f"files: {folder}"] if folder else []),
        "",
        _LEGEND,
    ]
    return "\n".join(lines)


def complaint(kind: str, outcome: Outcome) -> LoadVerdict | None:
    """Return why a ``gate`` or a ``comparison`` does not hold; None where it holds."""
    sentence = asset_table("verdicts.yaml")["complaints"][kind].get(outcome)
    return LoadVerdict(_WORDS[outcome], sentence) if sentence else None
