"""What if: one scenario, its verdict, its figures and distributions, beside a pinned baseline."""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import figures
from app.dashboard.charts import chart
from app.dashboard.downloads import downloads
from app.dashboard.metrics_row import metrics_row
from app.dashboard.sidebar import current_scenario, show_scenario
from app.dashboard.simulated import REPLICATIONS, Outcome, Summary, replications, simulated_or_stop

_BASELINE = "baseline"
_NOW, _BEFORE = "this scenario", "baseline"


def page() -> None:
    """Draw the page."""
    st.title("What if?")
    outcome = simulated_or_stop(current_scenario())
    baseline: Outcome | None = st.session_state.get(_BASELINE)
    _pinning(outcome, baseline)
    row = st.empty()
    _figures(row, outcome, baseline, [])
    _charts(outcome, baseline)
    downloads(outcome.run.requests, "requests")
    summaries = []
    for summary in replications(outcome):
        summaries.append(summary)
        if len(summaries) == REPLICATIONS:
            _figures(row, outcome, baseline, summaries)


def _figures(
    row: DeltaGenerator, outcome: Outcome, baseline: Outcome | None, summaries: list[Summary]
) -> None:
    with row.container():
        metrics_row(outcome.summary, baseline.summary if baseline else None, summaries)


def _pinning(outcome: Outcome, baseline: Outcome | None) -> None:
    with st.container(horizontal=True):
        st.button("Pin as baseline", on_click=_pin, args=(outcome,))
        if baseline:
            st.button("Back to the baseline", on_click=show_scenario, args=(baseline.file,))
            st.button("Unpin", on_click=_pin, args=(None,))


def _pin(outcome: Outcome | None) -> None:
    st.session_state[_BASELINE] = outcome


def _charts(outcome: Outcome, baseline: Outcome | None) -> None:
    outcomes = {_NOW: outcome, **({_BEFORE: baseline} if baseline else {})}
    requests = {name: found.run.requests for name, found in outcomes.items()}
    looks = figures.looks(outcomes)
    slo = outcome.file.slo.slo()
    for column, metric, limit_s in zip(
        st.columns(2), ("ttft_s", "tpot_s"), (slo.ttft_s, slo.tpot_s), strict=True
    ):
        with column:
            chart(figures.latency_cdf(requests, metric, looks, limit_s), f"cdf_{metric}")
    bars = {name: figures.mean_kv_parts(found.run.steps) for name, found in outcomes.items()}
    chart(figures.memory_bar(bars, "tokens"), "memory")
