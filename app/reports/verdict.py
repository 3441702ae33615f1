"""The verdict of a verification, in words and tables."""

import json
import textwrap
from collections.abc import Mapping, Sequence
from itertools import chain

from servetwin.app.calibration.recorded import RecordedCalibration
from servetwin.app.reports.claims import LEGEND, WIDTH, comparison_table, verdict_in_words
from servetwin.app.reports.run_words import load_words, measured_noun, recorded_words, rests_line
from servetwin.app.reports.table import table_lines
from servetwin.app.reports.tables import capacity_line, judged_line, note_lines
from servetwin.app.verdict.capacity import Saturation, is_near_saturation
from servetwin.app.verdict.claims import DEFAULT_LIMITS, MetricComparison, worst
from servetwin.app.verdict.intervals import CONFIDENCE
from servetwin.app.verdict.recorded import POINTS, RecordedVerification
from servetwin.app.verdict.verification import Level, Verification
from servetwin.app.verdict.why import Errors, Waterfall
from servetwin.app.words import METRICS
from servetwin.sim.experiments.stamp_fit import REQUEST_S
from servetwin.sim.step_times.profile import Profile


def verdict_lines(verification: Verification) -> list[str]:
    """Return one verification: the calibration, a table per load, the batches, the verdict."""
    fit, capacity = next(iter(verification.profile.layouts.values())), verification.capacity_per_s
    return [
        "",
        f"{verification.config.name}: capacity {capacity.value:.2f}/s "
        f"({capacity.low:.2f} to {capacity.high:.2f})",
        f"calibration: {fit.steps} steps, held-out error {100 * (fit.held_out_error or 0):.1f} %, "
        f"drift between rounds {100 * fit.drift:.1f} %",
        *_saturation_lines(verification.saturation),
        *(line for level in verification.levels for line in _level_lines(level, verification)),
        *_decision_lines(verification),
        *_conclusion(verification),
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


def summary_table(verifications: Sequence[Verification]) -> list[str]:
    """Return a line per policy and load: the error of each judged metric, and its interval."""
    heads = ["policy", "load", "throughput", "TPOT mean", "TTFT mean", "TTFT p90", ""]
    rows = []
    for one in verifications:
        if one.saturation:
            outcome = one.saturation.comparison.outcome
            rows.append(
                [one.config.name, "full", _cell(one.saturation.capacity), "-", "-", "-", outcome]
            )
        for level in one.levels:
            errors = {row.metric: row for row in level.comparison.metrics}
            cells = (_cell(errors[metric]) for metric in DEFAULT_LIMITS)
            rows.append([one.config.name, _share(level), *cells, level.comparison.outcome])
    rows = [[*cells, outcome.replace("refuted", "REFUTED")] for *cells, outcome in rows]
    title = f"error, {CONFIDENCE:.0%} interval, per cent"
    return ["", title, *table_lines(heads, rows, "<>>>>><")]


def as_json(verifications: Sequence[Verification]) -> str:
    """Return the verifications as JSON; the keys of a single one also stand at the top."""
    records = [one.as_dict() for one in verifications]
    alone = records[0] if len(records) == 1 else {}
    outcome = worst(one.outcome for one in verifications)
    verdict = {"outcome": outcome, "holds": outcome == "holds"}
    return json.dumps({**alone, **verdict, "verifications": records})


def _saturation_lines(saturation: Saturation | None) -> list[str]:
    if saturation is None:
        return []
    found = saturation.comparison
    return ["", f"{capacity_line(found.repeats)}:", comparison_table(found)]


def _level_lines(level: Level, verification: Verification) -> list[str]:
    return [
        "",
        *textwrap.wrap(f"at {_share(level)} of {_offered(level, verification.saturation)}", WIDTH),
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
        return "power: no change of step times would have been detected"
    return f"power: step times {' or '.join(changes)} would have been refuted"


def _decision_lines(verification: Verification) -> list[str]:
    if verification.decisions is None:
        return []
    return [
        f"batches: given the engine's own step times, the simulator decides "
        f"{verification.decisions.agreeing} of {verification.decisions.steps} steps identically"
    ]


def _conclusion(verification: Verification) -> list[str]:
    """Return the verdict, a sentence on each load, and what may be why."""
    meaning = {
        "holds": "the engine is within the limits of the prediction",
        "refuted": "the engine does not behave as the profile says",
        "cannot tell": "these load tests neither confirm nor refute the prediction",
    }
    outcome = verification.outcome.replace("refuted", "REFUTED")
    lines = [f"VERDICT: {outcome}; {meaning[verification.outcome]}"]
    judged = [(f"at {_share(level)}", level.comparison) for level in verification.levels]
    if verification.saturation:
        judged.insert(0, ("capacity", verification.saturation.comparison))
    for what, comparison in judged:
        said = " ".join(verdict_in_words(comparison))
        lines += textwrap.wrap(f"{what}: {said}", WIDTH, subsequent_indent="  ")
    if verification.outcome != "holds" and verification.not_identified:
        lines += ["possible causes, which calibration could not identify:"]
        lines += [f"  {name}: {why}" for name, why in verification.not_identified.items()]
    return lines


def _share(level: Level) -> str:
    return f"{100 * level.utilisation:.0f} %"


def _cell(row: MetricComparison) -> str:
    if row.error is None:
        return "-"
    if row.error_low is None or row.error_high is None:
        return f"{100 * row.error:+.1f}"
    return f"{100 * row.error_low:+.0f}..{100 * row.error_high:+.0f}"


_LATENCIES = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "E2E latency"}


def recorded_as_json(verification: RecordedVerification) -> str:
    """Return the verification as JSON."""
    return json.dumps(verification.as_dict())


def recorded_lines(verification: RecordedVerification) -> list[str]:
    """Return what served and what was recorded, a table of errors, and the verdict."""
    measured, policies = verification.measured.scenario, verification.scenario.policies
    said = " ".join(verdict_in_words(verification.comparison, measured_noun(measured)))
    return [
        recorded_words(verification.measured),
        *note_lines(measured.get("notes", ())),
        *verification.scenario.profile.describe(),
        f"policies: {policies.name}, {policies.max_seqs} sequences, "
        f"{policies.kv_tokens} KV tokens; "
        f"{verification.predicted.summary()['preemptions']} preemptions predicted",
        "",
        *_errors(verification),
        "",
        comparison_table(verification.comparison),
        rests_line(verification.predicted.extra["provenance"]),
        "",
        *textwrap.wrap(
            f"VERDICT: {verification.outcome.replace('refuted', 'REFUTED')}. {said}", WIDTH
        ),
        *(waterfall_lines(verification.why) if verification.why else []),
        "",
        LEGEND,
    ]


def _errors(verification: RecordedVerification) -> list[str]:
    """Return the error of each latency at its mean and quantiles, in per cent."""
    rows = []
    for name, label in _LATENCIES.items():
        errors = (verification.metrics[name][point]["error"] for point in POINTS)
        cells = ("-" if error is None else f"{100 * error:+.2f}" for error in errors)
        rows.append([label, *cells])
    return table_lines(["error, per cent", *POINTS], rows)


WHY_TITLE = (
    "Where the error comes from: each part is replaced by its measurement, one after the other"
)
_NAMED = 0.005
"""An effect of this much of the measured figure is named in words."""


def waterfall_lines(waterfall: Waterfall) -> list[str]:
    """Return a line per cause with its effect on the error of the means, then what that says."""
    labels = [METRICS[name].label.partition(" ")[0] for name in waterfall.predicted]
    rows = [["predicted", *_errors_shown(waterfall.predicted), ""]]
    for cause, effect in waterfall.effects():
        errors = effect or dict.fromkeys(waterfall.predicted)
        rows.append([f"  {cause.name}", *_errors_shown(errors), cause.note])
    rows.append(["left", *_errors_shown(waterfall.left), ""])
    heads = ["error of the mean, per cent", *labels, ""]
    sentences = (textwrap.wrap(sentence, WIDTH) for sentence in waterfall_sentences(waterfall))
    table = table_lines(heads, rows, "<" + ">" * len(labels) + "<")
    return ["", WHY_TITLE, *table, "", *chain.from_iterable(sentences)]


def _errors_shown(errors: Errors | dict[str, None]) -> list[str]:
    return ["-" if error is None else f"{100 * error:+.2f}" for error in errors.values()]


def waterfall_sentences(waterfall: Waterfall) -> list[str]:
    """Return a sentence per latency, and one on what was not measured."""
    said = []
    for name, error in waterfall.predicted.items():
        label = METRICS[name].label.partition(" ")[0]
        effects = [(effect[name], cause) for cause, effect in waterfall.effects() if effect]
        named = sorted(
            (one for one in effects if abs(one[0]) >= _NAMED), key=lambda one: -abs(one[0])
        )
        parts = ", ".join(f"{cause.name} {100 * effect:+.1f}" for effect, cause in named)
        said.append(
            f"{label} is {100 * error:+.1f} % off: {parts or 'no part matters'}; "
            f"{100 * waterfall.left[name]:+.1f} is left."
        )
    unknown = [f"{one.name} ({one.note})" for one in waterfall.causes if one.errors is None]
    if unknown:
        said.append(f"Not measured, so part of what is left: {'; '.join(unknown)}.")
    return said


_SHORT_LATENCIES = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "E2E"}


def calibration_lines(
    calibration: RecordedCalibration, prior: Mapping[str, float] | None
) -> list[str]:
    """Return the coefficients, what the log identifies, and the errors on later requests."""
    fit, identified = calibration.fit, set(calibration.fit.identified)
    values = ", ".join(f"{value:.3g}" for value in fit.singular_values)
    rows = [
        [
            name,
            f"{1e6 * value:.4g}",
            _known(fit.deviations[name]),
            "" if name in identified else "not identified by this log",
        ]
        for name, value in fit.coefficients.items()
    ]
    around = "around the prior" if prior else "around a rough guess"
    return [
        f"fitted to the stamps of {calibration.fitted} of {calibration.requests} requests, in "
        f"{fit.simulations} simulations, {around}",
        "",
        *table_lines(["", "us", "known to", ""], rows, "<>><"),
        f"singular values: {values}",
        "",
        *_mean_errors("later requests, which were not fitted", calibration.held_out),
        *_mean_errors("all requests", calibration.whole),
        f"misfit of neighbouring requests' TPOT: {100 * calibration.misfit:.1f} %, "
        "in every interval",
        "",
        *note_lines(calibration.evidence),
        *note_lines(
            ["the API's latency was fitted too: the stamps are those of clients"]
            if REQUEST_S in fit.coefficients
            else []
        ),
    ]


def _known(deviation: float) -> str:
    return f"+-{100 * deviation:.0f} %" if deviation < 1 else "-"


def _mean_errors(what: str, errors: Mapping[str, float]) -> list[str]:
    if not errors:
        return []
    shown = ", ".join(
        f"{_SHORT_LATENCIES[name]} {100 * error:+.2f} %" for name, error in errors.items()
    )
    return [f"{what}: mean {shown}"]
