"""The verdict of a verification, in words and tables."""

import json
import textwrap
from collections.abc import Sequence

from servetwin.app.reports.provenance import rests_line
from servetwin.app.reports.tables import capacity_line, judged_line
from servetwin.app.reports.trial_words import load_words
from servetwin.app.reports.waterfall import waterfall_lines
from servetwin.app.text.claims import WIDTH, comparison_table, verdict_in_words
from servetwin.app.verdict.capacity import Saturation, is_near_saturation
from servetwin.app.verdict.claims import DEFAULT_LIMITS, MetricComparison, worst
from servetwin.app.verdict.intervals import CONFIDENCE
from servetwin.app.verdict.verification import Level, Verification
from servetwin.sim.step_times.profile import Profile


def verdict_lines(found: Verification) -> list[str]:
    """Return one verification: the calibration, a table per load, the batches, the verdict."""
    fit, capacity = next(iter(found.profile.layouts.values())), found.capacity_per_s
    return [
        "",
        f"{found.config.name}: capacity {capacity.value:.2f}/s "
        f"({capacity.low:.2f} to {capacity.high:.2f})",
        f"calibration: {fit.steps} steps, held-out error {100 * (fit.held_out_error or 0):.1f} %, "
        f"drift between rounds {100 * fit.drift:.1f} %",
        *_saturation_lines(found.saturation),
        *(line for level in found.levels for line in _level_lines(level, found)),
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
    """Return a line per policy and load: the error of each judged metric, and its interval."""
    header = f"{'policy':<24}{'load':>5}" + "".join(
        f"{name:>14}" for name in ("throughput", "TPOT mean", "TTFT mean", "TTFT p90")
    )
    lines = ["", f"error, {CONFIDENCE:.0%} interval, per cent", header]
    for one in found:
        if one.saturation:
            outcome = one.saturation.comparison.outcome.replace("refuted", "REFUTED")
            cells = f"{_cell(one.saturation.capacity):>14}{'-':>14}{'-':>14}{'-':>14}"
            lines.append(f"{one.config.name:<24}{'full':>5}{cells}  {outcome}")
        for level in one.levels:
            rows = {row.metric: row for row in level.comparison.metrics}
            cells = "".join(f"{_cell(rows[metric]):>14}" for metric in DEFAULT_LIMITS)
            outcome = level.comparison.outcome.replace("refuted", "REFUTED")
            lines.append(f"{one.config.name:<24}{_share(level):>5}{cells}  {outcome}")
    return lines


def as_json(found: Sequence[Verification]) -> str:
    """Return the verifications as JSON; the keys of a single one also stand at the top."""
    records = [one.as_dict() for one in found]
    alone = records[0] if len(records) == 1 else {}
    outcome = worst(one.outcome for one in found)
    verdict = {"outcome": outcome, "holds": outcome == "holds"}
    return json.dumps({**alone, **verdict, "verifications": records})


def _saturation_lines(saturation: Saturation | None) -> list[str]:
    if saturation is None:
        return []
    found = saturation.comparison
    return ["", f"{capacity_line(found.repeats)}:", comparison_table(found)]


def _level_lines(level: Level, found: Verification) -> list[str]:
    return [
        "",
        *textwrap.wrap(
            f"at {_share(level)} of {_offered(level, found.saturation)}",
            WIDTH,
        ),
        comparison_table(level.comparison),
        *_steady_lines(level),
        f"client: {', '.join(run.extra['delivered']['verdict'] for run in level.measured)}",
        rests_line(level.provenance),
        _power_line(level),
        *(waterfall_lines(level.why) if level.why else []),
    ]


def _steady_lines(level: Level) -> list[str]:
    """Return the steady part beside the whole run, and which of the two is judged."""
    rows = comparison_table(level.steady).splitlines()[1:] if level.steady else []
    return [judged_line(level.prediction.steady), *rows]


def _offered(level: Level, saturation: Saturation | None) -> str:
    """Return the load; near saturation the same share of two capacities is compared."""
    sent = load_words(len(level.trace), level.trace.rate_per_s, len(level.measured), {})
    if saturation is None or not is_near_saturation(level.utilisation):
        return f"capacity: {sent}"
    return (
        f"the measured capacity: {sent}; predicted at {_share(level)} of the predicted capacity, "
        f"{level.prediction.trace.rate_per_s:.2f}/s (equal utilisation: throughput is not judged)"
    )


def _power_line(level: Level) -> str:
    """Return the smallest change of all step times that would have been refuted, either way."""
    slower, faster = level.refutable.slower, level.refutable.faster
    ways = ((slower, "slower"), (faster, "faster"))
    changes = [f"{100 * change:.0f} % {way}" for change, way in ways if change is not None]
    if not changes:
        return "power: no change of the step times would have been refuted"
    return f"power: steps that are {', or '.join(changes)}, would have been refuted"


def _decision_lines(found: Verification) -> list[str]:
    if found.decisions is None:
        return []
    return [
        f"batches: given the engine's own step times, the simulator decides "
        f"{found.decisions.agreeing} of {found.decisions.steps} steps identically"
    ]


def _conclusion(found: Verification) -> list[str]:
    """Return the verdict, a sentence on each load, and what may be why."""
    meaning = {
        "holds": "the engine is within the limits of the prediction",
        "refuted": "the engine is not what the profile says",
        "cannot tell": "these load tests neither confirm nor refute the prediction",
    }
    outcome = found.outcome.replace("refuted", "REFUTED")
    lines = [f"VERDICT: {outcome}; {meaning[found.outcome]}"]
    judged = [(f"at {_share(level)}", level.comparison) for level in found.levels]
    if found.saturation:
        judged.insert(0, ("capacity", found.saturation.comparison))
    for what, comparison in judged:
        said = " ".join(verdict_in_words(comparison))
        lines += textwrap.wrap(f"{what}: {said}", WIDTH, subsequent_indent="  ")
    if found.outcome != "holds" and found.not_identified:
        lines += ["what was not identified may be why:"]
        lines += [f"  {name}: {why}" for name, why in found.not_identified.items()]
    return lines


def _share(level: Level) -> str:
    return f"{100 * level.utilisation:.0f} %"


def _cell(row: MetricComparison) -> str:
    if row.error is None:
        return "-"
    if row.error_low is None or row.error_high is None:
        return f"{100 * row.error:+.1f}"
    return f"{100 * row.error_low:+.0f}..{100 * row.error_high:+.0f}"
