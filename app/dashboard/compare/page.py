"""Compare: any set of policies on the same requests, with common random numbers."""

from collections.abc import Mapping, Sequence

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from servetwin.app import figures
from servetwin.app.dashboard import simulations
from servetwin.app.dashboard.charts import chart, downloads, table
from servetwin.app.dashboard.compare import policy_comparison
from servetwin.app.dashboard.formatting import escaped, page_text
from servetwin.app.dashboard.metrics_row import (
    ScenarioSummaries,
    ShownMetric,
    chosen_metrics,
    summaries_so_far,
)
from servetwin.app.dashboard.scenario.sidebar import current_scenario
from servetwin.app.dashboard.scenario_words import (
    interval_sentence,
    only_prefix_cache_differs,
    prefix_advice,
    simulated_source,
)
from servetwin.app.dashboard.simulations import REPLICATIONS, SimulatedScenario
from servetwin.app.dashboard.widgets import control, problems_shown
from servetwin.app.scenario.files.scenario_file import ScenarioFile
from servetwin.app.words import METRICS
from servetwin.sim.records.metrics import LATENCIES, duration_unit
from servetwin.workloads.errors import ServetwinError

_FOUND, _STOPPED = "compare_found", "compare_stopped"
_MAY_BREAK = "\u200b"

Key = tuple[str, ...]


def page() -> None:
    """Draw the page: every policy simulated once, then with intervals."""
    st.title("Compare")
    files = _chosen(current_scenario())
    if not files:
        st.info("Choose policies above.")
        return
    key = tuple(file.model_dump_json() for file in files.values())
    work, metrics, tables = st.empty(), chosen_metrics(), st.empty()
    bar = _work_bar(work, key)
    outcomes = _simulate(bar, files, key)
    if not outcomes:
        return
    _tables(tables, outcomes, metrics)
    _say_what_is_unknown(outcomes)
    _distribution(outcomes)
    if len(outcomes) > 1:
        _gains(outcomes)
    if not _is_stopped(key):
        _replicate(bar, outcomes)
        work.empty()
        _tables(tables, outcomes, metrics)
    downloads(policy_comparison.comparison_frame(_sides(outcomes), metrics), "comparison")


def _chosen(scenario: ScenarioFile) -> dict[str, ScenarioFile]:
    """Return a scenario per valid policy, and show below the box what is wrong with the others."""
    labels = control(
        policy_comparison.POLICIES_KEY, list(policy_comparison.DEFAULT_LABELS),
        options=policy_comparison.policy_labels(),
        max_selections=policy_comparison.MOST_POLICIES,
    )  # fmt: skip
    files = {}
    for label in labels:
        with problems_shown():
            files[label] = policy_comparison.scenario_under(scenario, label)
    return files


def _work_bar(work: DeltaGenerator, key: Key) -> DeltaGenerator:
    """Draw the progress with a button to stop, or, once stopped, a button to go on."""
    with work.container(horizontal=True, vertical_alignment="center"):
        if _is_stopped(key):
            st.button("Go on", on_click=_stop, args=(None,))
            return st.caption("Stopped. The results so far are shown.")
        bar = st.progress(0.0, "simulating")
        st.button("Stop", on_click=_stop, args=(key,))
    return bar


def _stop(key: Key | None) -> None:
    st.session_state[_STOPPED] = key


def _is_stopped(key: Key) -> bool:
    return bool(st.session_state.get(_STOPPED) == key)


def _simulate(
    bar: DeltaGenerator, files: Mapping[str, ScenarioFile], key: Key
) -> dict[str, SimulatedScenario]:
    """Simulate each scenario once; where the work was stopped, return only earlier results."""
    done: set[str] = st.session_state.setdefault(_FOUND, set())
    done &= set(key)
    outcomes = {}
    for place, (label, file) in enumerate(files.items()):
        if _is_stopped(key) and key[place] not in done:
            continue
        if not _is_stopped(key):
            bar.progress(place / len(files), f"simulating {escaped(label)}")
        try:
            outcomes[label] = simulations.simulate(file)
            done.add(key[place])
        except ServetwinError as error:
            st.error(escaped(f"{label}: {error}"))
    return outcomes


def _replicate(bar: DeltaGenerator, outcomes: Mapping[str, SimulatedScenario]) -> None:
    for place, (label, outcome) in enumerate(outcomes.items()):
        for done in simulations.replications(outcome):
            share = (place + done / REPLICATIONS) / len(outcomes)
            progress = f"{escaped(label)}: replication {done} of {REPLICATIONS}"
            bar.progress(min(1.0, share), progress)


def _sides(outcomes: Mapping[str, SimulatedScenario]) -> dict[str, ScenarioSummaries]:
    return {label: summaries_so_far(outcome) for label, outcome in outcomes.items()}


def _tables(
    place: DeltaGenerator, outcomes: Mapping[str, SimulatedScenario], metrics: Sequence[ShownMetric]
) -> None:
    sides = _sides(outcomes)
    first, *_ = outcomes
    unknown = [
        name for name, of in outcomes.items() if only_prefix_cache_differs(outcomes[first], of)
    ]
    with place.container():
        st.markdown("**Metrics**", help=_definitions(metrics))
        values = policy_comparison.figures_table(sides, metrics)
        _figures(values, "Metrics of each policy.")
        if len(sides) > 1:
            st.markdown(f"**Differences from {escaped(first)}**")
            differences = policy_comparison.differences_table(sides, metrics, unknown)
            _figures(differences, "Differences of each policy from the first.")
        varies = any(outcome.is_drawn for outcome in outcomes.values())
        meaning = page_text("compare.meaning", replications=REPLICATIONS)
        st.caption(meaning if varies else interval_sentence(outcomes[first]))


def _figures(frame: pd.DataFrame, alt: str) -> None:
    """Draw a row per metric and a column per policy; a long label breaks at its signs."""
    columns = frame["policy"].str.replace("+", f"+{_MAY_BREAK}")
    st.table(frame.set_index(columns).drop(columns="policy").T, alt=alt)


def _definitions(metrics: Sequence[ShownMetric]) -> str:
    return "\n".join(
        f"- **{shown.label}**: {METRICS[shown.metric].definition}" for shown in metrics
    )


def _say_what_is_unknown(outcomes: Mapping[str, SimulatedScenario]) -> None:
    """Say which policies have a prefix cache of which these requests tell nothing."""
    caching = [name for name, of in outcomes.items() if of.scenario.policies.prefix_cache]
    if not caching:
        return
    one = outcomes[caching[0]]
    if advice := prefix_advice(one.file.workload, one.trace):
        st.info(f"{escaped(', '.join(caching))}: {advice}")


def _distribution(outcomes: Mapping[str, SimulatedScenario]) -> None:
    metric = st.segmented_control(
        "Distribution of", LATENCIES, default="ttft_s", required=True, key="compare_metric",
        format_func=lambda name: METRICS[name].label,
    )  # fmt: skip
    slo = next(iter(outcomes.values())).file.slo.slo()
    requests = {label: outcome.run.requests for label, outcome in outcomes.items()}
    limit_s: float | None = getattr(slo, metric)
    figure = figures.latency_cdf(requests, metric, figures.looks(outcomes), limit_s)
    chart(figure, "compare_cdf", simulated_source(outcomes.values()))


def _gains(outcomes: Mapping[str, SimulatedScenario]) -> None:
    """Draw which requests get faster and slower, on one run of each policy."""
    first, *others = outcomes
    st.markdown("**Faster and slower requests**")
    other = st.selectbox(f"From {first} to", others, key="compare_other")
    a, b = outcomes[first], outcomes[other]
    gains = policy_comparison.request_gains(a.run.requests, b.run.requests)
    st.markdown(policy_comparison.gains_sentence(gains, escaped(first), escaped(other)))
    chart(figures.gains_over_time(gains, first, other), "compare_gains", simulated_source((a, b)))
    frames = policy_comparison.largest_gains_and_losses(gains)
    titles = ("Largest gains", "Largest losses")
    for column, title, frame in zip(st.columns(2), titles, frames, strict=True):
        with column:
            st.markdown(f"**{title}**")
            _requests(frame, title, b.file)


def _requests(frame: pd.DataFrame, title: str, scenario: ScenarioFile) -> None:
    if frame.empty:
        st.caption("none")
        return
    times_s = {"before": frame["a"], "after": frame["b"], "difference": frame["difference"]}
    unit, factor = duration_unit(pd.concat([frame["a"], frame["b"]]))
    times = {f"{name}, {unit}": (factor * s).round(1) for name, s in times_s.items()}
    arrivals_s = frame["scheduled_s"].round(2)
    shown = pd.DataFrame({"request": frame["request_id"], "arrival, s": arrivals_s, **times})
    links = policy_comparison.timeline_links(scenario, frame["request_id"].tolist())
    if links:
        shown["timeline"] = links
    column = st.column_config.LinkColumn(
        display_text="why?", help="Open the Timeline under the second policy at this request."
    )
    thousands = dict.fromkeys(times, st.column_config.NumberColumn(format="localized"))
    columns = {**thousands, "timeline": column}
    table(shown, title, column_config=columns)
