"""Explore: one scenario with its verdict, its figures and how much more load it takes, beside a
pinned baseline and other policies.

The figures are sent first, and charts follow once the controls are at rest: drawing the charts of
each place that a slider passes would keep browser and server from the next figure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from servetwin.app.dashboard import charts, load_grid, scenario_words, simulations
from servetwin.app.dashboard.explore import comparison
from servetwin.app.dashboard.explore.verdict import facts, verdict_text
from servetwin.app.dashboard.formatting import escaped, page_text, plain
from servetwin.app.dashboard.jobs.job import progress_of
from servetwin.app.dashboard.jobs.priority_lock import Rank
from servetwin.app.dashboard.metrics_row import (
    ShownMetric,
    chosen_metrics,
    metrics_row,
    summaries_so_far,
)
from servetwin.app.dashboard.pictures import await_first_page
from servetwin.app.dashboard.scenario.controls import changes
from servetwin.app.dashboard.scenario.sidebar import current_scenario, show_scenario
from servetwin.app.dashboard.simulations import REPLICATIONS, SimulatedScenario
from servetwin.app.dashboard.widgets import await_rest, control, end_if_stale, problems_shown
from servetwin.app.figures import canvas, curves, load_curves, over_time
from servetwin.app.scenario.files.scenario_file import ScenarioFile
from servetwin.app.words import METRICS, asset_table
from servetwin.sim.experiments.paired_comparison import largest_differences
from servetwin.sim.experiments.predict import interval
from servetwin.sim.records.metrics import LATENCIES, SLO, duration_unit

_BASELINE, _JOB = "baseline", "loads"
_MAY_BREAK = "\u200b"
_BOXES = asset_table("words.yaml")["slo_boxes"]
BUTTON = "Show me static against continuous batching"
BATCHING = ("static+contiguous", "continuous+contiguous")

Outcomes = Mapping[str, SimulatedScenario]


def page() -> None:
    """Draw the page: the figures of one simulation at once, then what takes longer."""
    outcome = simulations.simulate_or_stop(current_scenario())
    baseline: SimulatedScenario | None = st.session_state.get(_BASELINE)
    st.markdown(scenario_words.simulated_line(outcome))
    answer = _Answer(outcome, baseline)
    answer.draw()
    words, loads = answer.words, answer.loads
    _buttons(outcome, baseline)
    files, tables = comparison.chosen(outcome.file), st.empty()
    metric = control(
        "explore_metric", place=loads, options=LATENCIES,
        format_func=lambda name: METRICS[name].label,
    )  # fmt: skip
    await_first_page()
    await_rest()
    outcomes = {comparison.OWN_LABEL: outcome, **({_BASELINE: baseline} if baseline else {})}
    for label, file in files.items():
        with problems_shown():
            outcomes[label] = simulations.simulate(file)
    _table(tables, outcomes, answer.metrics)
    _say_what_is_unknown(outcomes)
    with simulations.TURNS.turn(Rank.REST_OF_PAGE, end_if_stale):
        _distributions(outcomes)
        _gains(outcomes)
    charts.downloads(outcome.run.requests, "requests")
    with problems_shown():
        with loads:
            _loads(metric, words, outcomes)
        charts.draw_save_menu()
        _replicate(words, outcomes)
    answer.draw()
    _table(tables, outcomes, answer.metrics)
    words.caption(
        " ".join([scenario_words.interval_sentence(outcome), *_changed(outcome, baseline)])
    )


def _buttons(outcome: SimulatedScenario, baseline: SimulatedScenario | None) -> None:
    """Draw an example at one click, and what pins a baseline."""
    with st.container(horizontal=True):
        st.button(BUTTON, on_click=comparison.show, args=(BATCHING,))
        st.button(
            "Pin as baseline", on_click=_pin, args=(outcome,),
            help="Keep these results and show differences to them.",
        )  # fmt: skip
        if baseline:
            st.button("Back to the baseline", on_click=show_scenario, args=(baseline.file,))
            st.button("Unpin", on_click=_pin, args=(None,))


def _pin(outcome: SimulatedScenario | None) -> None:
    st.session_state[_BASELINE] = outcome


class _Answer:
    """Verdict and metrics; the places of words on them, and of p99 against load; and below them the
    reader's choice of metrics."""

    def __init__(self, outcome: SimulatedScenario, baseline: SimulatedScenario | None) -> None:
        self._outcome, self._baseline = outcome, baseline
        self._facts = facts(outcome)
        self._verdict: DeltaGenerator = st.empty()
        self._row: DeltaGenerator = st.empty()
        self.words: DeltaGenerator = st.empty()
        self.loads = charts.reserved("loads")
        self.metrics = chosen_metrics()

    def draw(self) -> None:
        """Draw both, with intervals once there are replications.

        All is computed before anything is drawn, so that nothing disappears for a moment.
        """
        outcome, baseline = self._outcome, self._baseline
        summaries = simulations.finished_replications(outcome)
        attainment = interval(summaries, "slo_attainment")
        found = replace(self._facts, interval=attainment)
        before = summaries_so_far(baseline) if baseline else None
        unknown = baseline is not None and scenario_words.only_prefix_cache_differs(
            baseline, outcome
        )
        with self._verdict.container():
            kind, icon = _BOXES[found.kind]
            getattr(st, kind)(verdict_text(found), icon=f":material/{icon}:")
        with self._row.container():
            why = scenario_words.CANNOT_TELL if unknown else None
            metrics_row(self.metrics, summaries_so_far(outcome), before, why)


def _loads(metric: str, words: DeltaGenerator, outcomes: Outcomes) -> None:
    """Draw p99 against load: how far today's load is from the limit."""
    job = load_grid.load_job(_JOB, {name: of.file for name, of in outcomes.items()})
    for done in progress_of(job):
        words.caption(f"Loads: {done} of {len(job.items)} simulated ...")
    outcome = outcomes[comparison.OWN_LABEL]
    slo, rate_per_s = outcome.file.slo, outcome.file.workload.rate_per_s
    now_per_s = outcome.trace.rate_per_s if rate_per_s is None else rate_per_s
    points = load_grid.finished_points(job)
    figure = load_curves.latency_by_load(
        points, metric, canvas.looks(outcomes),
        limit_s=getattr(slo.slo(), metric), now_per_s=now_per_s,
    )  # fmt: skip
    if slo.slo() != SLO():
        limits = load_grid.limits_of_load(points, slo.attainment, now_per_s)
        st.markdown("\n\n".join(f"**{escaped(line)}**" for line in limits))
    charts.chart(figure, "explore_loads", scenario_words.grid_source(outcome.file))
    if len(outcome.trace) > load_grid.MOST_REQUESTS:
        st.caption(f"Each load: the first {load_grid.MOST_REQUESTS:,} requests.")
    charts.downloads(points, "loads")


def _table(place: DeltaGenerator, outcomes: Outcomes, metrics: Sequence[ShownMetric]) -> None:
    """Draw the figures of every scenario, and their differences from the first."""
    if len(outcomes) < 2:
        return
    first, *_ = outcomes.values()
    sides = {label: summaries_so_far(of) for label, of in outcomes.items()}
    unknown = [
        name for name, of in outcomes.items() if scenario_words.only_prefix_cache_differs(first, of)
    ]
    frame = comparison.figures_table(sides, metrics, unknown)
    columns = frame["policy"].str.replace("+", f"+{_MAY_BREAK}")
    with place.container():
        st.table(frame.set_index(columns).drop(columns="policy").T, alt="Figures of each scenario.")
        if first.is_drawn:
            st.caption(page_text("explore.meaning", replications=REPLICATIONS))


def _say_what_is_unknown(outcomes: Outcomes) -> None:
    """Say which scenarios have a prefix cache of which these requests tell nothing."""
    caching = [name for name, of in outcomes.items() if of.scenario.policies.prefix_cache]
    if not caching:
        return
    one = outcomes[caching[0]]
    if advice := scenario_words.prefix_advice(one.file.workload, one.trace):
        st.info(advice if len(outcomes) == 1 else f"{escaped(', '.join(caching))}: {advice}")


def _distributions(outcomes: Outcomes) -> None:
    requests = {name: outcome.run.requests for name, outcome in outcomes.items()}
    looks = canvas.looks(outcomes)
    slo = outcomes[comparison.OWN_LABEL].file.slo.slo()
    drawn = {
        f"explore_{metric}": curves.latency_cdf(requests, metric, looks, getattr(slo, metric))
        for metric in ("ttft_s", "tpot_s")
    }
    charts.charts_by_two(drawn, scenario_words.simulated_source(outcomes.values()))


def _gains(outcomes: Outcomes) -> None:
    """Draw which requests get faster and slower, on one run of each policy."""
    first, *others = outcomes
    if not others:
        return
    st.markdown("**Faster and slower requests**")
    other = st.selectbox(f"From {first} to", others, key="explore_other")
    a, b = outcomes[first], outcomes[other]
    gains = comparison.request_gains(a.run.requests, b.run.requests)
    st.markdown(comparison.gains_sentence(gains, escaped(first), escaped(other)))
    charts.chart(
        over_time.gains_over_time(gains, first, other),
        "explore_gains",
        scenario_words.simulated_source((a, b)),
    )
    frames = largest_differences(gains, 5)
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
    links = comparison.links_to_why(scenario, frame["request_id"].tolist())
    if links:
        shown["why"] = links
    column = st.column_config.LinkColumn(
        display_text="why?", help="Open the page Why under the second policy at this request."
    )
    thousands = dict.fromkeys(times, st.column_config.NumberColumn(format="localized"))
    charts.table(shown, title, column_config={**thousands, "why": column})


def _replicate(words: DeltaGenerator, outcomes: Outcomes) -> None:
    """Simulate the missing replications; the page stays usable meanwhile."""
    for label, outcome in outcomes.items():
        for done in simulations.replications(outcome):
            words.caption(f"Intervals: {done} of {REPLICATIONS} replications, {escaped(label)} ...")


def _changed(outcome: SimulatedScenario, baseline: SimulatedScenario | None) -> list[str]:
    """Return what has changed since the baseline, and how differences are computed."""
    if not baseline:
        return []
    changed = changes(baseline.file, outcome.file).items()
    listed = [f"{name} {_shown(before)} → {_shown(after)}" for name, (before, after) in changed]
    return [page_text("explore.changed", changes=", ".join(listed) or "nothing")]


def _shown(value: object) -> str:
    return "none" if value is None else plain(value) or "empty"
