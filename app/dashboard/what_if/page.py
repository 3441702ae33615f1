"""What if: one scenario with its verdict, metrics and distributions, beside a pinned baseline.

The figures are sent first, and charts follow once the controls are at rest: drawing the charts of
each place that a slider passes would keep browser and server from the next figure.
"""

import logging
import time
from collections.abc import Mapping
from dataclasses import replace

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from servetwin.app import figures
from servetwin.app.dashboard import simulations
from servetwin.app.dashboard.charts import chart, charts_by_two, downloads
from servetwin.app.dashboard.compare.page import page as compare
from servetwin.app.dashboard.compare.policy_comparison import POLICIES_KEY
from servetwin.app.dashboard.formatting import page_text, plain
from servetwin.app.dashboard.jobs.priority_lock import Rank
from servetwin.app.dashboard.metrics_row import (
    ShownMetric,
    chosen_metrics,
    metrics_row,
    summaries_so_far,
)
from servetwin.app.dashboard.scenario.controls import changes
from servetwin.app.dashboard.scenario.sidebar import current_scenario, show_scenario
from servetwin.app.dashboard.scenario_words import (
    CANNOT_TELL,
    interval_sentence,
    only_prefix_cache_differs,
    prefix_advice,
    simulated_line,
    simulated_source,
)
from servetwin.app.dashboard.simulations import REPLICATIONS, SimulatedScenario
from servetwin.app.dashboard.what_if.verdict import Verdict, facts, judge
from servetwin.app.dashboard.widgets import await_rest, end_if_stale, problems_shown
from servetwin.sim.experiments.predict import interval
from servetwin.sim.step_times.roofline.server import RooflineServer

_BASELINE = "baseline"
_NOW, _BEFORE = "this scenario", "baseline"
_GB = 1e9
_BOXES = {
    "holds": (st.success, "check_circle"),
    "fails": (st.error, "cancel"),
    "unsure": (st.warning, "help"),
    "none": (st.info, "info"),
}
_LOG = logging.getLogger(__name__)
BUTTON = "Show me static against continuous batching"
BATCHING = ("static+contiguous", "continuous+contiguous")


def page() -> None:
    """Draw the page: the figures of one simulation at once, then what takes longer."""
    started_s = time.perf_counter()
    head = st.container(horizontal=True, vertical_alignment="center")
    with head:
        st.title("What if?")
    outcome = simulations.simulate_or_stop(current_scenario())
    baseline: SimulatedScenario | None = st.session_state.get(_BASELINE)
    with head:
        _pinning(outcome, baseline)
    st.markdown(simulated_line(outcome))
    _first_visit()
    if outcome.scenario.policies.prefix_cache and (
        advice := prefix_advice(outcome.file.workload, outcome.trace)
    ):
        st.info(advice)
    answer = _Answer(outcome, baseline)
    answer.draw()
    words = st.empty()
    await_rest()
    outcomes = {_NOW: outcome, **({_BEFORE: baseline} if baseline else {})}
    with simulations.TURNS.turn(Rank.REST_OF_PAGE, end_if_stale):
        _distributions(outcomes)
        _over_time(outcomes)
        memory = st.container()
        downloads(outcome.run.requests, "requests")
    _LOG.debug("drawn in %.3f s", time.perf_counter() - started_s)
    _replicate(words, outcome, baseline)
    answer.draw()
    with memory:
        _memory(outcomes)
    _LOG.debug("complete after %.3f s", time.perf_counter() - started_s)


def _first_visit() -> None:
    """Draw what the dashboard is for, in a sentence, and an example at one click."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(page_text("what_if.first_visit"), width="stretch")
        if st.button(BUTTON):
            page = st.Page(compare, title="Compare", url_path="compare")
            st.switch_page(page, query_params={POLICIES_KEY: BATCHING})


def memory_parts(outcome: SimulatedScenario) -> tuple[dict[str, float], str]:
    """Return what a replica's memory holds on average, by part of ``figures.memory_bar``, and the
    unit: bytes where a data sheet says how many there are, else tokens of KV memory."""
    tokens = figures.mean_kv_parts(simulations.steps_with_usage(outcome))
    server = outcome.scenario.profile
    if not isinstance(server, RooflineServer):
        return tokens, "tokens"
    weights = server.deployment.resident_weight_bytes()
    gb = {part: count * server.kv_bytes_per_token() / _GB for part, count in tokens.items()}
    return {"weights": weights / _GB, **gb}, "GB"


def bars_of_one_unit(
    found: Mapping[str, tuple[dict[str, float], str]],
) -> list[tuple[str, dict[str, dict[str, float]]]]:
    """Return the bars by unit: a bar of bytes does not stand beside one of tokens."""
    units = dict.fromkeys(unit for _, unit in found.values())
    return [
        (unit, {name: parts for name, (parts, of) in found.items() if of == unit}) for unit in units
    ]


class _Answer:
    """Verdict and metrics, with the reader's choice of figures between them."""

    def __init__(self, outcome: SimulatedScenario, baseline: SimulatedScenario | None) -> None:
        self._outcome, self._baseline = outcome, baseline
        self._facts = facts(outcome)
        self._verdict: DeltaGenerator = st.empty()
        self._metrics: tuple[ShownMetric, ...] = chosen_metrics()
        self._row: DeltaGenerator = st.empty()

    def draw(self) -> None:
        """Draw both, with intervals once there are replications.

        All is computed before anything is drawn, so that nothing disappears for a moment.
        """
        outcome, baseline = self._outcome, self._baseline
        summaries = simulations.finished_replications(outcome)
        attainment = interval(summaries, "slo_attainment")
        verdict = judge(replace(self._facts, interval=attainment))
        before = summaries_so_far(baseline) if baseline else None
        unknown = baseline is not None and only_prefix_cache_differs(baseline, outcome)
        with self._verdict.container():
            _box(verdict)
        with self._row.container():
            why = CANNOT_TELL if unknown else None
            metrics_row(self._metrics, summaries_so_far(outcome), before, why)


def _box(found: Verdict) -> None:
    draw, icon = _BOXES[found.kind]
    draw(found.text, icon=f":material/{icon}:")


def _replicate(
    words: DeltaGenerator, outcome: SimulatedScenario, baseline: SimulatedScenario | None
) -> None:
    """Simulate the missing replications; the page stays usable meanwhile."""
    with problems_shown():
        for one in filter(None, (outcome, baseline)):
            for done in simulations.replications(one):
                words.caption(f"Intervals: {done} of {REPLICATIONS} replications ...")
    words.caption(" ".join([interval_sentence(outcome), *_changed(outcome, baseline)]))


def _changed(outcome: SimulatedScenario, baseline: SimulatedScenario | None) -> list[str]:
    """Return what has changed since the baseline, and how differences are computed."""
    if not baseline:
        return []
    changed = changes(baseline.file, outcome.file).items()
    listed = [f"{name} {_shown(before)} → {_shown(after)}" for name, (before, after) in changed]
    return [page_text("what_if.changed", changes=", ".join(listed) or "nothing")]


def _shown(value: object) -> str:
    return "none" if value is None else plain(value) or "empty"


def _pinning(outcome: SimulatedScenario, baseline: SimulatedScenario | None) -> None:
    st.button(
        "Pin as baseline", on_click=_pin, args=(outcome,),
        help="Keep these results and show differences to them.",
    )  # fmt: skip
    if baseline:
        st.button("Back to the baseline", on_click=show_scenario, args=(baseline.file,))
        st.button("Unpin", on_click=_pin, args=(None,))


def _pin(outcome: SimulatedScenario | None) -> None:
    st.session_state[_BASELINE] = outcome


def _distributions(outcomes: Mapping[str, SimulatedScenario]) -> None:
    requests = {name: outcome.run.requests for name, outcome in outcomes.items()}
    looks = figures.looks(outcomes)
    slo = outcomes[_NOW].file.slo.slo()
    charts_by_two(
        (
            (
                f"Distribution of {figures.METRICS[metric].label}",
                figures.latency_cdf(requests, metric, looks, limit_s),
                f"what_if_{metric}",
            )
            for metric, limit_s in (("ttft_s", slo.ttft_s), ("tpot_s", slo.tpot_s))
        ),
        simulated_source(outcomes.values()),
    )


def _over_time(outcomes: Mapping[str, SimulatedScenario]) -> None:
    states = {
        name: figures.state_of_steps(outcome.run.steps, outcome.scenario.policies.kv_tokens)
        for name, outcome in outcomes.items()
    }
    st.markdown("**The server over time**")
    figure = figures.server_over_time(states, figures.looks(outcomes))
    chart(figure, "what_if_server", simulated_source(outcomes.values()))


def _memory(outcomes: Mapping[str, SimulatedScenario]) -> None:
    parts = {name: memory_parts(outcome) for name, outcome in outcomes.items()}
    st.markdown("**Memory of a replica, mean over time**")
    for unit, bars in bars_of_one_unit(parts):
        source = simulated_source(outcomes[name] for name in bars)
        chart(figures.memory_bar(bars, unit), f"what_if_memory_{unit}", source)
