"""The verdict of a verification, in words and tables."""

import json
from collections.abc import Mapping, Sequence

from servetwin.app.calibration.recorded import RecordedCalibration
from servetwin.app.reports.claims import (
    LEGEND,
    WORDS,
    comparison_table,
    metric_name,
    outcome_word,
    verdict_in_words,
)
from servetwin.app.reports.run_words import (
    load_words,
    measured_noun,
    provenance_line,
    recorded_words,
)
from servetwin.app.reports.table import WIDTH, table_lines, wrapped
from servetwin.app.reports.tables import note_lines
from servetwin.app.verdict.claims import DEFAULT_LIMITS, MetricComparison, worst
from servetwin.app.verdict.intervals import CONFIDENCE
from servetwin.app.verdict.lane_claims import LaneClaims
from servetwin.app.verdict.recorded import POINTS, RecordedVerification
from servetwin.app.verdict.two_claims import STEPS, TwoClaims
from servetwin.app.verdict.verification import Level, Verification
from servetwin.app.verdict.why.explanation import Explanation
from servetwin.app.verdict.why.hypotheses import Hypothesis, tied
from servetwin.app.words import METRICS
from servetwin.sim.experiments.stamp_fit import REQUEST_S
from servetwin.sim.records.metrics import LATENCIES
from servetwin.sim.step_times.profile import Profile, StepTimeFit
from servetwin.workloads.rows import counted


def verdict_lines(verification: Verification) -> list[str]:
    """Return one verification: the calibration, a table per load, the batches, the verdict."""
    fit = next(iter(verification.forecast.profile.layouts.values()))
    capacity = verification.forecast.capacity_per_s
    lines = [
        "",
        f"{verification.forecast.config.name}: capacity {capacity.value:.2f}/s "
        f"({capacity.low:.2f} to {capacity.high:.2f})",
        f"calibration: {fit_words(fit)}",
    ]
    for level in verification.levels:
        lines += _level_lines(level)
    if decisions := verification.decisions:
        lines.append(
            "batches: given the engine's own step times, the simulator decides "
            f"{decisions.agreeing} of {decisions.steps} steps identically"
        )
    return [*lines, *_conclusion(verification)]


def profile_lines(profile: Profile) -> list[str]:
    """Describe a profile, part by part."""
    lines = profile.describe()
    for layout, fit in profile.layouts.items():
        lines.append(f"{layout}: {fit_words(fit)}")
        parts = {name: value for name, value in fit.coefficients.items() if value > 0}
        lines += [f"  {name:<24}{1e6 * value:>12.3f} us" for name, value in parts.items()]
    api = profile.api
    return [
        *lines,
        f"API: request in {1e3 * api.request_s:.2f} ms + {1e6 * api.request_per_token_s:.2f} us "
        f"per prompt token, chunk out {1e3 * api.chunk_s:.2f} ms + "
        f"{1e6 * api.chunk_per_sequence_s:.0f} us per sequence",
    ]


def fit_words(fit: StepTimeFit) -> str:
    """Return how well a fit gives steps that it has not seen."""
    if not fit.steps:
        return "no step was timed, so there are no residuals"
    error = f"held-out error {100 * (fit.held_out_error or 0):.1f} % (median)"
    return f"{fit.steps} steps, {error}, drift between rounds {100 * fit.drift:.1f} %"


def summary_table(verifications: Sequence[Verification]) -> list[str]:
    """Return a line per policy and load: the error of each judged metric, and its interval."""
    levels = [(one.forecast.config.name, level) for one in verifications for level in one.levels]
    errors = [{row.metric: row for row in level.claims.comparison.metrics} for _, level in levels]
    judged = [m for m in (STEPS, *DEFAULT_LIMITS) if any(m in of for of in errors)]
    heads = [metric_name(m).removesuffix(", all").removeprefix("output ") for m in judged]
    rows = [
        [name, _share(level), *(_interval(of.get(m)) for m in judged),
         outcome_word(level.claims.comparison.outcome)]
        for (name, level), of in zip(levels, errors, strict=True)
    ]  # fmt: skip
    title = f"error, {CONFIDENCE:.0%} interval, per cent"
    form = f"<{'>' * (1 + len(judged))}<"
    return ["", title, *table_lines(["policy", "load", *heads, ""], rows, form)]


def as_json(verifications: Sequence[Verification]) -> str:
    """Return the verifications as JSON; the keys of a single one also stand at the top."""
    records = [one.as_dict() for one in verifications]
    alone = records[0] if len(records) == 1 else {}
    outcome = worst(one.outcome for one in verifications)
    verdict = {"outcome": outcome, "holds": outcome == "holds"}
    return json.dumps({**alone, **verdict, "verifications": records})


def _level_lines(level: Level) -> list[str]:
    sent = load_words(len(level.trace), level.trace.rate_per_s or None, len(level.measured), {})
    lanes = level.claims.lanes
    return [
        "",
        *wrapped([f"at {_share(level)} of capacity: {sent}"]),
        *comparison_table(level.claims.comparison.metrics),
        *(_lane_claims_lines(lanes) if lanes else []),
        *_claims_lines(level.claims),
        f"client: {', '.join(run.extra['delivered']['verdict'] for run in level.measured)}",
        provenance_line(level.prediction.run.extra["provenance"]),
        _power_line(level),
        *(explanation_lines(level.why) if level.why else []),
    ]


def _claims_lines(claims: TwoClaims) -> list[str]:
    """Return the speed of the machine during the tests, and the whole forecast, which is a fact."""
    lines = wrapped([_machine_line(claims), *([WORDS["whole forecast"]] if claims.whole else [])])
    for name, one in claims.whole.items():
        means_s = one.at_speed_s, one.corrected_s, one.measured_s
        metric = METRICS[name].fitting(means_s)
        at_speed, corrected, measured = (f"{metric.scaled(mean):.1f}" for mean in means_s)
        text = (
            f"{metric.label} mean {at_speed} {metric.unit}, {corrected} with the measured step "
            f"times, {measured} measured; it moves {one.elasticity:.1f} % for 1 % of step time at "
            f"this load, so the interval of the steps explains {one.explained:.0%} of the error"
        )
        lines += [f"  {line}" for line in wrapped([text], "  ", WIDTH - 2)]
    return lines


def _lane_claims_lines(lanes: LaneClaims) -> list[str]:
    """Return what both sides sent, whether in the same order, and what they found in the cache."""
    line = (
        f"lanes: {counted(lanes.tasks, 'whole task')} and {counted(lanes.requests, 'request')} on "
        f"both sides, {lanes.moved:,} in another order, {lanes.early:,} sent before a parent had "
        f"ended; {lanes.equal:,} found as many tokens in the cache"
    )
    rows = [
        [f"{one:,.{digits}f}" for one, digits in zip(turns.values(), (0, 0, 1, 1), strict=True)]
        for turns in lanes.by_turn
    ]
    heads = ["from turn", "requests", "cached tokens predicted", "measured"]
    return [*wrapped([line]), *table_lines(heads, rows, ">>>>")]


def _machine_line(claims: TwoClaims) -> str:
    """Return the speed of the machine during the tests, or why it is not known."""
    steps = claims.steps
    aside = f"; {counted(steps.set_aside, 'block')} set aside" if steps.set_aside else ""
    if steps.clock != "beats":
        how = WORDS["wall time"][steps.clock].format(told=steps.told)
        both = "its speed and an error that all steps share look alike"
        return f"machine: steps are {how}: {both}{aside}"
    change = f"{100 * abs(steps.slowness - 1):.1f} % {'slower' if steps.slowness > 1 else 'faster'}"
    if claims.elsewhere:
        than = f"{steps.slowness:.2f} times the beat of the profile's ({claims.elsewhere})"
    else:
        than = f"{change} than at calibration by its reference beats"
    lost = f"other programs took {100 * steps.lost:.1f} % of the engine's time"
    return f"machine: {than}, and {lost}{aside}"


def _power_line(level: Level) -> str:
    """Return the smallest change of all step times that would have been refuted."""
    change = level.claims.refutable
    if change is None:
        return "power: no change of step times would have been detected"
    return f"power: step times {100 * change:.0f} % slower or faster would have been refuted"


def _conclusion(verification: Verification) -> list[str]:
    """Return the verdict, a sentence on each load, and what may be why."""
    outcome = verification.outcome
    comparisons = {f"at {_share(level)}": level.claims.comparison for level in verification.levels}
    sentences = [f"{of}: {' '.join(verdict_in_words(one))}" for of, one in comparisons.items()]
    proven = (level for level in verification.levels if level.claims.comparison.outcome == "holds")
    sentences += map(proof_words, proven)
    lines = [
        f"VERDICT: {outcome_word(outcome)}; {WORDS['verification'][outcome]}",
        *wrapped(sentences, "  "),
    ]
    causes = verification.identified.get("not identified", {})
    if outcome != "holds" and causes:
        lines += ["possible causes, which calibration could not identify:"]
        lines += [f"  {name}: {why}" for name, why in causes.items()]
    return lines


def proof_words(level: Level) -> str:
    """Return how exactly both claims of a load hold, in one sentence."""
    bounds = {
        row.metric: max(abs(row.error_low), abs(row.error_high))
        for row in level.claims.comparison.metrics
        if row.limit is not None and row.error_low is not None and row.error_high is not None
    }
    rest = ", ".join(
        f"{metric_name(metric)} {bound:.1%}"
        for metric, bound in bounds.items()
        if metric in DEFAULT_LIMITS
    )
    given = f"; given them, {rest}" if rest else ""
    return (
        f"At {_share(level)} the step times of the profile are right to within "
        f"{bounds[STEPS]:.1%}{given} (with {CONFIDENCE:.0%} confidence)."
    )


def _share(level: Level) -> str:
    return f"{100 * level.prediction.utilisation:.0f} %"


def _interval(row: MetricComparison | None) -> str:
    if row is None or row.error is None:
        return "-"
    if row.error_low is None or row.error_high is None:
        return f"{100 * row.error:+.1f}"
    return f"{100 * row.error_low:+.0f}..{100 * row.error_high:+.0f}"


def recorded_lines(verification: RecordedVerification) -> list[str]:
    """Return what served and what was recorded, a table of errors, and the verdict."""
    measured, policies = verification.measured.scenario, verification.scenario.policies
    sentences = " ".join(verdict_in_words(verification.comparison, measured_noun(measured)))
    rows = [
        [METRICS[name].label, *(f"{100 * (row['error'] or 0.0):+.2f}" for row in points.values())]
        for name, points in verification.metrics.items()
    ]
    return [
        recorded_words(verification.measured),
        *note_lines(measured.get("notes", ())),
        *verification.scenario.profile.describe(),
        f"policies: {policies.name}, {policies.max_seqs} sequences, "
        f"{policies.kv_tokens} KV tokens; "
        f"{verification.predicted.summary()['preemptions']} preemptions predicted",
        "",
        *table_lines(["error, per cent", *POINTS], rows),
        "",
        *comparison_table(verification.comparison.metrics),
        provenance_line(verification.predicted.extra["provenance"]),
        "",
        *wrapped([f"VERDICT: {outcome_word(verification.outcome)}. {sentences}"]),
        *(explanation_lines(verification.why) if verification.why else []),
        "",
        LEGEND,
    ]


WHY_TITLE = "Settings that may be stated wrongly, each fitted alone to what was measured"
_SHORT = {name: METRICS[name].label.partition(" ")[0] for name in LATENCIES}


def explanation_lines(why: Explanation) -> list[str]:
    """Return a line per hypothesis, then what they and the notes say."""
    ranking = _ranking_lines(why.hypotheses) if why.hypotheses else []
    return ["", *ranking, "", *wrapped(explanation_sentences(why))]


def _ranking_lines(ranking: Sequence[Hypothesis]) -> list[str]:
    """Return a line per hypothesis: its value, its share, and what it leaves of the error."""
    rows = [
        [
            one.name,
            *("" if value is None else one.shown(value) for value in (one.stated, one.estimate)),
            one.interval,
            f"{one.share:.0%}",
            *(f"{100 * miss:.1f}" for miss in one.misses.values()),
        ]
        for one in ranking
    ]
    left = [f"{_SHORT[name]} left" for name in ranking[0].misses]
    heads = ["setting", "stated", "estimate", "90 %", "share", *left]
    note = "left: median error of single requests, per cent"
    return [WHY_TITLE, *table_lines(heads, rows, "<>>>>" + ">" * len(left)), note]


def explanation_sentences(why: Explanation) -> list[str]:
    """Return which setting is named, if hypotheses were fitted, and a sentence on what was sent."""
    named = [ranking_sentence(why.hypotheses)] if why.hypotheses else []
    return [*named, f"As measured in all simulations: {'; '.join(why.notes)}."]


def ranking_sentence(ranking: Sequence[Hypothesis]) -> str:
    """Return which setting is named, which others explain as much, or that none is."""
    named = [f"{one.name} {one.in_words}" for one in tied(ranking)]
    if not named:
        return "No setting explains the measurements clearly better than as stated."
    if len(named) == 1:
        return f"One setting explains the measurements best: {named[0]}."
    return f"These explain the measurements alike, one of them is enough: {'; '.join(named)}."


def calibration_lines(
    calibration: RecordedCalibration, prior: Mapping[str, float] | None
) -> list[str]:
    """Return the coefficients, what the log identifies, and the errors on later requests."""
    fit = calibration.fit
    values = ", ".join(f"{value:.3g}" for value in fit.singular_values)
    rows = [
        [
            name,
            f"{1e6 * value:.4g}",
            f"+-{100 * deviation:.0f} %" if deviation < 1 else "-",
            "" if name in fit.identified else "not identified by this log",
        ]
        for name, value in fit.coefficients.items()
        for deviation in [fit.deviations[name]]
    ]
    notes = [*calibration.evidence]
    if REQUEST_S in fit.coefficients:
        notes.append("the API's latency was fitted too: the stamps are those of clients")
    return [
        f"fitted to the stamps of {calibration.fitted} of {calibration.requests} requests, in "
        f"{fit.simulations} simulations, around {'the prior' if prior else 'a rough guess'}",
        "",
        *table_lines(["", "us", "known to", ""], rows, "<>><"),
        f"singular values: {values}",
        "",
        *_mean_errors("later requests, which were not fitted", calibration.held_out),
        *_mean_errors("all requests", calibration.whole),
        f"misfit of neighbouring requests' TPOT: {100 * calibration.misfit:.1f} %, "
        "in every interval",
        "",
        *note_lines(notes),
    ]


def _mean_errors(requests: str, errors: Mapping[str, float]) -> list[str]:
    means = ", ".join(f"{_SHORT[name]} {100 * error:+.2f} %" for name, error in errors.items())
    return [f"{requests}: mean {means}"] if errors else []
