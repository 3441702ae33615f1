"""Trust: what the scenario rests on, predicted against measured, and the fit of the profile."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from servetwin.app import figures
from servetwin.app.dashboard.charts import chart, charts_by_two, downloads, table
from servetwin.app.dashboard.formatting import escaped, page_text
from servetwin.app.dashboard.kept_runs.folder import last_change_s
from servetwin.app.dashboard.scenario.allowed_choices import offered, runs_folder
from servetwin.app.dashboard.scenario.sidebar import current_scenario
from servetwin.app.dashboard.scenario_words import simulated_source
from servetwin.app.dashboard.simulations import SimulatedScenario, simulate
from servetwin.app.dashboard.trust import profile_fit, trials
from servetwin.app.dashboard.trust.error_by_load import error_by_band
from servetwin.app.dashboard.trust.real_gpus import (
    EVIDENCE,
    evidence_sentence,
    evidence_table,
    figures_by_evidence,
    measurement_in_words,
    real_gpus,
    shown_metric,
)
from servetwin.app.dashboard.widgets import control
from servetwin.app.reports.claims import verdict_in_words
from servetwin.app.reports.html.tables import error_rows
from servetwin.app.reports.report_folders import Trial
from servetwin.app.reports.run_words import made_by, outside_warning, source_line
from servetwin.app.scenario.files.scenario_file import ScenarioFile
from servetwin.app.verdict.claims import Comparison
from servetwin.app.verdict.intervals import CONFIDENCE
from servetwin.app.words import METRICS, origin_sentences
from servetwin.sim.records.metrics import LATENCIES
from servetwin.sim.step_times.profile import Profile, load_profile
from servetwin.workloads.errors import ServetwinError

_OF_TRIAL = "the profile of the trial above"
_PERCENT = st.column_config.NumberColumn(format="%+.1f")
_FOUR_DIGITS = st.column_config.NumberColumn(format="%.4g")


def page() -> None:
    """Draw the page."""
    st.title("Trust")
    scenario = current_scenario()
    _scenario(scenario)
    name, trial = _trial()
    _verdict(name, trial)
    _errors(trial)
    _calibration(name)
    st.caption("All requests of the trial, predicted and measured")
    downloads(trials.requests_of(trial), "trust_requests")
    _real_gpus()


def _scenario(scenario: ScenarioFile) -> None:
    st.subheader("What the scenario at the side rests on")
    try:
        outcome = simulate(scenario)
    except ServetwinError as error:
        st.error(escaped(str(error)))
        return
    provenance = outcome.run.extra["provenance"]
    chart(figures.provenance_bar(provenance), "trust_rests", simulated_source([outcome]))
    _say_what_it_rests_on(outcome, provenance)


def _say_what_it_rests_on(outcome: SimulatedScenario, provenance: Mapping[str, Any]) -> None:
    if warning := outside_warning(provenance, widened=not outcome.scenario.is_certain()):
        st.warning(escaped(warning.removeprefix("warning: ")))
    elif outcome.scenario.origins == ("measured here",):
        st.success("Every step lies within the range that its profile measured.")
    else:
        sentences = origin_sentences(outcome.scenario.origins)
        st.info(f"{sentences} Calibrate an engine to know the error.")


def _trial() -> tuple[str, Trial]:
    st.subheader("Predicted against measured")
    read = _trials(str(runs_folder()), last_change_s(runs_folder()))
    for problem in read.problems:
        st.warning(escaped(f"Left out: {problem}"))
    name = control("trust_trial", options=list(read.by_name))
    return name, read.by_name[name]


@st.cache_resource(max_entries=4, show_spinner="Reading the runs ...")
def _trials(root: str, changed: float) -> trials.Trials:
    return trials.find_trials(Path(root))


def _verdict(name: str, trial: Trial) -> None:
    metrics = trial.comparison.metrics
    _box(trial.load, trial.comparison, trial.noun)
    st.caption(escaped(f"Measured {trials.when_and_where(trial)}."))
    if (trials.EXAMPLE / name).is_dir():
        st.caption(page_text("trust.example", command=trials.COMMAND))
    chart(figures.errors_with_intervals(error_rows(metrics)), "trust_errors", _source(trial))
    with st.expander("The errors as a table"):
        verdicts = trials.verdict_table(metrics)
        table(verdicts, "Errors of the prediction, with verdicts.")
        st.caption(page_text("trust.errors", confidence=100 * CONFIDENCE))


def _source(trial: Trial) -> str:
    return source_line([trial.predicted.run, *(named.run for named in trial.measured)])


def _box(what: str, comparison: Comparison, noun: str) -> None:
    """Show the verdict on ``what``, in words and colour."""
    box = {"holds": st.success, "refuted": st.error, "cannot tell": st.warning}
    sign, words = (
        trials.VERDICTS[comparison.outcome][0],
        " ".join(verdict_in_words(comparison, noun)),
    )
    box[comparison.outcome](escaped(f"{sign} {what}: {words}"))


def _errors(trial: Trial) -> None:
    metric = control(
        "trust_metric", options=list(LATENCIES), format_func=lambda name: METRICS[name].label,
        help=METRICS[st.session_state.get("trust_metric", "ttft_s")].definition,
    )  # fmt: skip
    predicted = trial.predicted.run.requests
    measured = {named.name.rpartition("/")[2]: named.run.requests for named in trial.measured}
    looks = figures.looks(measured)
    percentiles = figures.predicted_against_measured(predicted, measured, metric, looks)
    bands = figures.error_per_band(
        error_by_band(predicted, list(measured.values()), metric), metric
    )
    charts_by_two(
        [
            ("By percentile", percentiles, "trust_percentiles"),
            ("By requests in flight", bands, "trust_bands"),
        ],
        _source(trial),
    )


def _calibration(trial: str) -> None:
    st.subheader("Calibration")
    path = trials.profile_of(runs_folder(), trial)
    choices = [*([_OF_TRIAL] if path else []), *offered()["profile"]]
    name = control("trust_profile", options=choices)
    try:
        profile = load_profile(str(path) if name == _OF_TRIAL else name)
    except ServetwinError as error:
        st.error(escaped(str(error).replace(str(runs_folder()), "")))
        return
    _describe(profile)
    _fits(profile)


def _describe(profile: Profile) -> None:
    dates = [str(profile.machine["date"])] if "date" in profile.machine else []
    description = " of ".join([profile.describe()[0], *dates])
    st.markdown(escaped(description[:1].upper() + description[1:]))
    for layout, fit in profile.layouts.items():
        st.markdown(f"- {escaped(profile_fit.fit_sentence(layout, fit, profile.origin))}")


def _fits(profile: Profile) -> None:
    looks = figures.looks(profile.layouts)
    fits = {str(name): fit for name, fit in profile.layouts.items()}
    decodes = {name: profile_fit.decode_curve(fit) for name, fit in fits.items()}
    prompts = {name: profile_fit.prompt_curve(fit) for name, fit in fits.items()}
    decode_steps = figures.step_time_curve(decodes, "decodes, count", looks)
    prompt_steps = figures.step_time_curve(prompts, "prompt, tokens", looks)
    charts_by_two(
        [
            ("A step of decodes", decode_steps, "trust_decodes"),
            ("A step of one prompt", prompt_steps, "trust_prompts"),
        ],
        _profile_source(profile),
    )
    left, right = st.columns(2)
    with left:
        st.markdown("**Coefficients**")
        for tab, (layout, fit) in zip(st.tabs(list(fits)), fits.items(), strict=True):
            frame = profile_fit.coefficient_table(fit)
            digits = dict.fromkeys(frame.columns[1:], _FOUR_DIGITS)
            with tab:
                alt = f"Fitted coefficients, {layout}."
                table(frame, alt, height=300, column_config=digits)
    with right:
        st.markdown("**Residuals**")
        _residuals(profile, looks)


def _profile_source(profile: Profile) -> str:
    return f"From {profile.describe()[0]}; {made_by()}"


def _residuals(profile: Profile, looks: Mapping[str, figures.Look]) -> None:
    left = profile_fit.residuals(profile)
    if not left:
        st.info(f"No residuals: the step times of this profile are {profile.origin}.")
        return
    chart(figures.residual_cdf(left, looks), "trust_residuals", _profile_source(profile))
    st.caption("A profile keeps quantiles of its residuals, not the measured steps.")


def _real_gpus() -> None:
    st.subheader("Real GPUs")
    results = real_gpus()
    figures_found = figures_by_evidence(results)
    st.markdown(escaped(measurement_in_words(results)))
    source = (
        f"Measured by others ({results['source']}); predicted on {results['date']}; {made_by()}"
    )
    chart(figures.predicted_by_evidence(figures_found), "trust_gpus", source)
    st.caption("Mean and p90 of each latency. The step times of the predictions are from:")
    st.caption("\n".join(f"- {evidence_sentence(name)}" for name in EVIDENCE))
    metrics = figures_found["metric"].unique()
    tabs = st.tabs([shown_metric(results, metric).title for metric in metrics])
    for tab, metric in zip(tabs, metrics, strict=True):
        frame = evidence_table(results, metric)
        formats = {"error, %": _PERCENT, "predicted": _FOUR_DIGITS, "measured": _FOUR_DIGITS}
        columns = {
            head: form
            for head in map(str, frame)
            for end, form in formats.items()
            if head.endswith(end)
        }
        with tab:
            alt = f"{METRICS[metric].label} of real GPUs, predicted and measured."
            table(frame, alt, column_config=columns)
    downloads(figures_found, "trust_gpus")
    st.markdown("Your own recorded run; `--out` in the folder of runs makes it a trial above:")
    st.code(page_text("trust.own_recording"), language="bash", wrap_lines=True)
