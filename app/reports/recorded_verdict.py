"""The verdict on a recorded run, in words and tables."""

import json
import textwrap

from servetwin.app.reports.provenance import rests_line
from servetwin.app.reports.tables import note_lines
from servetwin.app.reports.trial_words import measured_noun, recorded_words
from servetwin.app.reports.waterfall import waterfall_lines
from servetwin.app.text.claims import (
    LEGEND,
    WIDTH,
    comparison_table,
    verdict_in_words,
)
from servetwin.app.verdict.recorded import POINTS, RecordedVerification

_LATENCIES = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "E2E latency"}


def recorded_as_json(found: RecordedVerification) -> str:
    """Return the verification as JSON."""
    return json.dumps(found.as_dict())


def recorded_lines(found: RecordedVerification) -> list[str]:
    """Return what served and what was recorded, a table of errors, and the verdict."""
    measured = found.measured.scenario
    said = " ".join(verdict_in_words(found.comparison, measured_noun(measured)))
    return [
        recorded_words(found.measured),
        *note_lines(measured.get("notes", ())),
        *found.scenario.profile.describe(),
        f"policies: {found.scenario.policies.name}, {found.scenario.policies.max_seqs} sequences, "
        f"{found.scenario.policies.kv_tokens} KV tokens; "
        f"{found.predicted.summary()['preemptions']} preemptions predicted",
        "",
        *_errors(found),
        "",
        comparison_table(found.comparison),
        rests_line(found.predicted.extra["provenance"]),
        "",
        *textwrap.wrap(f"VERDICT: {found.outcome.replace('refuted', 'REFUTED')}. {said}", WIDTH),
        *(waterfall_lines(found.why) if found.why else []),
        "",
        LEGEND,
    ]


def _errors(found: RecordedVerification) -> list[str]:
    """Return the error of each latency at its mean and quantiles, in per cent."""
    lines = [f"{'error, per cent':<16}" + "".join(f"{point:>9}" for point in POINTS)]
    for name, label in _LATENCIES.items():
        errors = (found.metrics[name][point]["error"] for point in POINTS)
        cells = ("-" if error is None else f"{100 * error:+.2f}" for error in errors)
        lines.append(f"{label:<16}" + "".join(f"{cell:>9}" for cell in cells))
    return lines
