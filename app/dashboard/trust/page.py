"""Trust: what the answers rest on, predictions of real GPUs, the last verdict, and the fit of a
profile."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from servetwin.app.dashboard.charts import chart, charts_by_two, downloads, report_table, table
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
    Results,
    evidence_sentence,
    evidence_table,
    figures_by_evidence,
    measurement_in_words,
    real_gpus,
)
from servetwin.app.dashboard.widgets import control, problems_shown
from servetwin.app.figures import agreement, canvas, curves, stacked_bars
from servetwin.app.reports.claims import verdict_in_words
from servetwin.app.reports.html.tables import comparison_table, error_rows
from servetwin.app.reports.report_folders import Trial
from servetwin.app.reports.run_words import made_by, outside_warning, source_line
from servetwin.app.reports.verdict import fit_words
from servetwin.app.scenario.files.scenario_file import ScenarioFile
from servetwin.app.words import METRICS, origin_sentences
from servetwin.sim.records.metrics import LATENCIES
from servetwin.sim.step_times.profile import Profile, load_profile
from servetwin.workloads.errors import ServetwinError

_OF_TRIAL = "the profile of the trial above"
_PERCENT = st.column_config.NumberColumn(format="%+.1f")
_FOUR_DIGITS = st.column_config.NumberColumn(format="%.4g")


def page() -> None:
    """Draw the page."""
    _scenario(current_scenario())
    _real_gpus()
    name, trial = _trial()
    _verdict(name, trial)
    _errors(trial)
    with st.expander("How the step times of a profile were fitted"):
        _calibration(name)
    downloads(trials.requests_of(trial), "trial_requests")


def _scenario(scenario: ScenarioFile) -> None:
    st.subheader("What the answers rest on")
    with problems_shown():
        outcome = simulate(scenario)
        provenance = outcome.run.extra["provenance"]
        bar = stacked_bars.provenance_bar(provenance)
        if len(bar.data) > 1:
            chart(bar, "trust_rests", simulated_source([outcome]))
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
    st.subheader("The last verdict")
    by_name, problems = _trials(str(runs_folder()), last_change_s(runs_folder()))
    for problem in problems:
        st.warning(escaped(f"Left out: {problem}"))
    name = control("trust_trial", options=list(by_name))
    return name, by_name[name]


@st.cache_resource(max_entries=4, show_spinner="Reading the runs ...")
def _trials(root: str, changed: float) -> tuple[dict[str, Trial], list[str]]:
    return trials.find_trials(Path(root))


def _verdict(name: str, trial: Trial) -> None:
    comparison, metrics = trial.comparison, trial.comparison.metrics
    words = " ".join(verdict_in_words(comparison, trial.noun))
    box = {"holds": st.success, "refuted": st.error, "cannot tell": st.warning}
    box[comparison.outcome](escaped(f"{words} Load: {trial.load}."))
    st.caption(escaped(f"Measured {trials.when_and_where(trial)}."))
    if (trials.EXAMPLE / name).is_dir():
        st.caption(page_text("trust.example", command=trials.COMMAND))
    chart(agreement.errors_with_intervals(error_rows(metrics)), "trust_errors", _source(trial))
    with st.expander("The errors as a table"):
        alt = "Errors of the prediction, with verdicts."
        report_table(comparison_table(comparison), alt, trials.ERROR_COLUMNS)


def _source(trial: Trial) -> str:
    return source_line([trial.predicted.run, *(named.run for named in trial.measured)])


def _errors(trial: Trial) -> None:
    metric = control(
        "trust_metric", options=list(LATENCIES), format_func=lambda name: METRICS[name].label,
        help=METRICS[st.session_state.get("trust_metric", "ttft_s")].definition,
    )  # fmt: skip
    predicted = trial.predicted.run.requests
    measured = {named.name.rpartition("/")[2]: named.run.requests for named in trial.measured}
    looks = canvas.looks(measured)
    percentiles = agreement.predicted_against_measured(predicted, measured, metric, looks)
    bands = agreement.error_per_band(
        error_by_band(predicted, list(measured.values()), metric), metric
    )
    charts_by_two({"trust_percentiles": percentiles, "trust_bands": bands}, _source(trial))


def _calibration(trial: str) -> None:
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
        st.markdown(f"- {escaped(layout)}: {escaped(fit_words(fit))}")


def _fits(profile: Profile) -> None:
    looks = canvas.looks(profile.layouts)
    fits = {str(name): fit for name, fit in profile.layouts.items()}
    decodes = {name: profile_fit.decode_curve(fit) for name, fit in fits.items()}
    prompts = {name: profile_fit.prompt_curve(fit) for name, fit in fits.items()}
    decode_steps = curves.step_time_curve(decodes, "decodes, count", looks)
    prompt_steps = curves.step_time_curve(prompts, "prompt, tokens", looks)
    source = f"From {profile.describe()[0]}; {made_by()}"
    charts_by_two({"trust_decodes": decode_steps, "trust_prompts": prompt_steps}, source)


def _real_gpus() -> None:
    st.subheader("Predictions of real GPUs")
    results = real_gpus()
    points = figures_by_evidence(results)
    source = (
        f"Measured by others ({results['source']}); predicted on {results['date']}; {made_by()}"
    )
    chart(agreement.predicted_by_evidence(points), "trust_gpus", source)
    downloads(points, "real_gpus")
    with st.expander("How they were measured, and all figures"):
        st.markdown(escaped(measurement_in_words(results)))
        st.caption("Mean and p90 of each latency. The step times of the predictions are from:")
        st.caption("\n".join(f"- {evidence_sentence(name)}" for name in EVIDENCE))
        _tables_of_gpus(results, points["metric"].unique())
        st.markdown("Your own recorded run; `--out` in the folder of runs makes it a trial below:")
        st.code(page_text("trust.own_recording"), language="bash", wrap_lines=True)


def _tables_of_gpus(results: Results, metrics: Iterable[str]) -> None:
    formats = {"error, %": _PERCENT, "predicted": _FOUR_DIGITS, "measured": _FOUR_DIGITS}
    for metric in metrics:
        st.markdown(f"**{agreement.shown_metric(figures_by_evidence(results), metric).title}**")
        frame = evidence_table(results, metric)
        columns = {
            head: form
            for head in map(str, frame)
            for end, form in formats.items()
            if head.endswith(end)
        }
        alt = f"{METRICS[metric].label} of real GPUs, predicted and measured."
        table(frame, alt, column_config=columns)
