"""The verdict of a verification: predicted, measured, error, noise floor, in words and tables."""

import json
import textwrap
from collections.abc import Sequence

from app.text.provenance import rests_line
from app.twin.verification import Level, Verification
from loadtest.report.comparison import DEFAULT_LIMITS, MetricComparison
from loadtest.report.comparison_report import comparison_table
from sim.step_times.profile import Profile

_WIDTH = 100  # characters of a line


def verdict_lines(found: Verification) -> list[str]:
    """Return one verification: the calibration, a table per load, the batches, the verdict."""
    fit = next(iter(found.profile.layouts.values()))
    return [
        "",
        f"{found.config.name}: capacity {found.capacity_per_s:.2f}/s",
        f"calibration: {fit.steps} steps, held-out error {100 * (fit.held_out_error or 0):.1f} %, "
        f"drift between rounds {100 * fit.drift:.1f} %",
        *(line for level in found.levels for line in _level_lines(level)),
        *_decision_lines(found),
        *_conclusion(found),
    ]


def profile_lines(profile: Profile) -> list[str]:
    """Describe a profile, part by part."""
    lines = profile.describe()
    for layout, fit in profile.layouts.items():
        error = 100 * (fit.held_out_error or 0)
        lines.append(
            f"{layout}: {fit.steps} steps, held-out error {error:.1f} % (median), drift between "
            f"rounds {100 * fit.drift:.1f} %"
        )
        parts = {name: value for name, value in fit.coefficients.items() if value > 0}
        lines += [f"  {name:<24}{1e6 * value:>12.3f} us" for name, value in parts.items()]
    api = profile.api
    lines.append(
        f"API: request in {1e3 * api.request_s:.2f} ms + {1e6 * api.request_per_token_s:.2f} us "
        f"per prompt token, chunk out {1e3 * api.chunk_s:.2f} ms + "
        f"{1e6 * api.chunk_per_sequence_s:.0f} us per sequence"
    )
    return lines


def summary_table(found: Sequence[Verification]) -> list[str]:
    """Return all verifications, one line per policy and load: error and noise floor of main
    metrics."""
    header = f"{'policy':<28}{'load':>6}" + "".join(
        f"{name:>14}" for name in ("throughput", "TPOT mean", "TTFT mean", "TTFT p90")
    )
    lines = ["", "error (noise floor), per cent", header]
    for one in found:
        for level in one.levels:
            rows = {row.metric: row for row in level.comparison.metrics}
            cells = "".join(f"{_cell(rows[metric]):>14}" for metric in DEFAULT_LIMITS)
            verdict = "ok" if level.comparison.holds else "FAILED"
            lines.append(f"{one.config.name:<28}{_share(level):>6}{cells}  {verdict}")
    return lines


def as_json(found: Sequence[Verification]) -> str:
    """Return the verifications as JSON; the keys of a single one also stand at the top."""
    records = [one.as_dict() for one in found]
    alone = records[0] if len(records) == 1 else {}
    holds = all(one.holds for one in found)
    return json.dumps({**alone, "holds": holds, "verifications": records})


def _level_lines(level: Level) -> list[str]:
    return [
        "",
        f"at {_share(level)} of capacity: {len(level.trace)} requests at "
        f"{level.trace.rate_per_s:.2f}/s, {len(level.measured)} load tests",
        comparison_table(level.comparison),
        f"client: {', '.join(run.extra['delivered']['verdict'] for run in level.measured)}",
        rests_line(level.provenance),
    ]


def _decision_lines(found: Verification) -> list[str]:
    if found.decisions is None:
        return []
    return [
        f"batches: given the engine's own step times, the simulator decides "
        f"{found.decisions.agreeing} of {found.decisions.steps} steps identically"
    ]


def _conclusion(found: Verification) -> list[str]:
    if found.holds:
        several = len(found.levels) > 1
        return ["VERDICT: the predictions hold" if several else "VERDICT: the prediction holds"]
    failed = [
        f"{row.metric} at {_share(level)}"
        for level in found.levels
        for row in level.comparison.metrics
        if row.holds is False
    ]
    open_ = [f"  {name}: {why}" for name, why in found.not_identified.items()]
    return [
        *textwrap.wrap(f"VERDICT: the prediction FAILED on {', '.join(failed)}", _WIDTH),
        *(["what was not identified may be why:", *open_] if open_ else []),
    ]


def _share(level: Level) -> str:
    return f"{100 * level.utilisation:.0f} %"


def _cell(row: MetricComparison) -> str:
    if row.error is None:
        return "-"
    noise = "-" if row.noise is None else f"{100 * row.noise:.1f}"
    return f"{100 * row.error:+.1f} ({noise})"
