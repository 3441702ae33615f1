"""Trust: what the scenario rests on, predicted against measured, and the fit of the profile."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from servetwin.app import figures
from servetwin.app.dashboard.charts import chart
from servetwin.app.dashboard.downloads import downloads
from servetwin.app.dashboard.formatting import escaped
from servetwin.app.dashboard.kept_runs.folder import last_change_s
from servetwin.app.dashboard.pictures.simulated_source import simulated_source
from servetwin.app.dashboard.scenario.allowed_choices import offered, runs_folder
from servetwin.app.dashboard.scenario.sidebar import current_scenario
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
from servetwin.app.reports.claims import verdict_in_words
from servetwin.app.reports.html.tables import error_rows
from servetwin.app.reports.report_folders import Trial
from servetwin.app.reports.run_words import made_by, outside_warning, source_line
from servetwin.app.reports.tables import capacity_line, judged_line
from servetwin.app.scenario.files.scenario_file import ScenarioFile
from servetwin.app.verdict.claims import Comparison
from servetwin.app.verdict.intervals import CONFIDENCE
from servetwin.app.words import METRICS, origin_sentences
from servetwin.sim.records.steady_part import STEADY_PART
from servetwin.sim.step_times.profile import Profile, load_profile
from servetwin.workloads.errors import ServetwinError

_OF_TRIAL = "the profile of the trial above"
_PERCENT = st.column_config.NumberColumn(format="%+.1f")
_FOUR_DIGITS = st.column_config.NumberColumn(format="%.4g")
_OWN_RECORDING = """\
servetwin loadtest import measured.jsonl --out recorded
servetwin verify --recorded recorded --model llama-3.1-8b --layers layers \\
    --preset vllm-v1 --set max_seqs=256 --set kv_tokens=41408 --out runs/recorded
"""


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
        said = origin_sentences(outcome.scenario.origins)
        st.info(f"{said} Calibrate an engine to know the error.")


def _trial() -> tuple[str, Trial]:
    st.subheader("Predicted against measured")
    read = _trials(str(runs_folder()), last_change_s(runs_folder()))
    for problem in read.problems:
        st.warning(escaped(f"Left out: {problem}"))
    name = st.selectbox(
        "Trial", list(read.found), key="trust_trial", bind="query-params",
        help="Folders of `servetwin verify --out`, and replays with load tests of the same "
        "requests, among the runs that this dashboard keeps; and a bundled trial.",
    )  # fmt: skip
    return name, read.found[name]


@st.cache_resource(max_entries=4, show_spinner="Reading the runs ...")
def _trials(root: str, changed: float) -> trials.Trials:
    return trials.find_trials(Path(root))


def _verdict(name: str, trial: Trial) -> None:
    metrics = trial.comparison.metrics
    if trial.capacity:
        _box(capacity_line(trial.capacity.repeats), trial.capacity, trial.noun)
        metrics = (*trial.capacity.metrics, *metrics)
    _box(trial.load, trial.comparison, trial.noun)
    judged = judged_line(trial.steady_part)
    st.caption(escaped(judged[:1].upper() + judged[1:]))
    st.caption(escaped(f"Measured {trials.when_and_where(trial)}."))
    if (trials.EXAMPLE / name).is_dir():
        st.caption(
            "An example, bundled with Servetwin: "
            f"`{trials.COMMAND}` on its own engine, two shared vCPUs."
        )
    chart(figures.errors_with_intervals(error_rows(metrics)), "trust_errors", _source(trial))
    with st.expander("The errors as a table"):
        verdicts = trials.verdict_table(metrics)
        st.dataframe(
            verdicts,
            hide_index=True,
            placeholder="-",
            alt="Errors of the prediction, with verdicts.",
        )
        st.caption(
            f"Error: (predicted - measured) / measured, with its {100 * CONFIDENCE:.0f} % "
            "confidence interval. A metric holds when the interval lies within the limit, is "
            "refuted when it lies outside; else the load tests cannot tell."
        )
        if steady := trial.steady:
            st.caption(STEADY_PART)
            verdicts = trials.verdict_table(steady.metrics)
            st.dataframe(
                verdicts, hide_index=True, placeholder="-",
                alt="The same errors in the steady part.",
            )  # fmt: skip


def _source(trial: Trial) -> str:
    return source_line([trial.predicted.run, *(named.run for named in trial.measured)])


def _box(what: str, found: Comparison, noun: str) -> None:
    """Show the verdict on ``what``, in words and colour."""
    box = {"holds": st.success, "refuted": st.error, "cannot tell": st.warning}
    sign, said = trials.VERDICTS[found.outcome][0], " ".join(verdict_in_words(found, noun))
    box[found.outcome](escaped(f"{sign} {what}: {said}"))


def _errors(trial: Trial) -> None:
    metrics = ("ttft_s", "tpot_s", "e2e_s")
    metric = st.segmented_control(
        "Error in detail of", metrics, default="ttft_s", required=True, key="trust_metric",
        bind="query-params", format_func=lambda name: METRICS[name].label,
        help=METRICS[st.session_state.get("trust_metric", "ttft_s")].definition,
    )  # fmt: skip
    predicted = trial.predicted.run.requests
    measured = {named.name.rpartition("/")[2]: named.run.requests for named in trial.measured}
    left, right = st.columns(2)
    with left:
        st.markdown("**By percentile**")
        looks = figures.looks(measured)
        found = figures.predicted_against_measured(predicted, measured, metric, looks)
        chart(found, "trust_percentiles", _source(trial))
    with right:
        st.markdown("**By requests in flight**")
        bands = error_by_band(predicted, list(measured.values()), metric)
        chart(figures.error_per_band(bands, metric), "trust_bands", _source(trial))


def _calibration(trial: str) -> None:
    st.subheader("Calibration")
    path = trials.profile_of(runs_folder(), trial)
    choices = [*([_OF_TRIAL] if path else []), *offered()["profile"]]
    name = st.selectbox(
        "Profile", choices, key="trust_profile", bind="query-params",
        help="Step times of an engine on a machine, and where they come from.",
    )  # fmt: skip
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
    decodes = {str(name): profile_fit.decode_curve(fit) for name, fit in profile.layouts.items()}
    prompts = {str(name): profile_fit.prompt_curve(fit) for name, fit in profile.layouts.items()}
    source = _profile_source(profile)
    left, right = st.columns(2)
    with left:
        st.markdown("**A step of decodes**")
        chart(figures.step_time_curve(decodes, "decodes, count", looks), "trust_decodes", source)
    with right:
        st.markdown("**A step of one prompt**")
        chart(figures.step_time_curve(prompts, "prompt, tokens", looks), "trust_prompts", source)
    left, right = st.columns(2)
    with left:
        st.markdown("**Coefficients**")
        tabs = st.tabs([str(layout) for layout in profile.layouts])
        for tab, (layout, fit) in zip(tabs, profile.layouts.items(), strict=True):
            table, alt = profile_fit.coefficient_table(fit), f"Fitted coefficients, {layout}."
            digits = dict.fromkeys(table.columns[1:], _FOUR_DIGITS)
            tab.dataframe(table, hide_index=True, height=300, column_config=digits, alt=alt)
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
        table = evidence_table(results, metric)
        heads = [str(head) for head in table]
        values = [head for head in heads if head.endswith(("predicted", "measured"))]
        columns = dict.fromkeys(values, _FOUR_DIGITS)
        columns |= dict.fromkeys((head for head in heads if "error" in head), _PERCENT)
        alt = f"{METRICS[metric].label} of real GPUs, predicted and measured."
        tab.dataframe(table, hide_index=True, placeholder="-", column_config=columns, alt=alt)
    downloads(figures_found, "trust_gpus")
    st.markdown("Your own recorded run; `--out` in the folder of runs makes it a trial above:")
    st.code(_OWN_RECORDING, language="bash", wrap_lines=True)
