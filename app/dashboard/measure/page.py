"""Measure: a load test of a live endpoint, beside its prediction, and the runs that are kept."""

from dataclasses import replace

import pandas as pd
import streamlit as st

from servetwin.app.dashboard.charts import charts_by_two
from servetwin.app.dashboard.formatting import escaped, page_text
from servetwin.app.dashboard.measure.kept import OPEN, draw_kept_runs
from servetwin.app.dashboard.measure.load_test_process import Endpoint, LoadTestProcess, start
from servetwin.app.dashboard.scenario.allowed_choices import additions, runs_folder
from servetwin.app.dashboard.scenario.sidebar import current_scenario
from servetwin.app.dashboard.scenario_words import simulated_source
from servetwin.app.dashboard.simulations import SimulatedScenario, simulate_or_stop
from servetwin.app.dashboard.widgets import draw_every, problems_shown
from servetwin.app.figures import canvas, over_time
from servetwin.app.words import METRICS, short
from servetwin.loadtest.dialects.servers import DIALECTS
from servetwin.loadtest.endpoint import endpoint_url
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.program.loopback import is_loopback

_TEST, _OUTCOME, _SHOWN = "load_test", "load_test_outcome", "load_test_shown"
_EVERY_S = 1.0
_RECOGNISED = "detected"
_LATENCIES = ("ttft_s", "tpot_s")


def page() -> None:
    """Draw the page."""
    outcome = simulate_or_stop(current_scenario())
    test: LoadTestProcess | None = st.session_state.get(_TEST)
    is_busy = test is not None and test.running
    _form(outcome, is_busy)
    if is_busy:
        draw_every(_EVERY_S, _watched)
        return
    if test is not None:
        _ended(test, st.session_state[_OUTCOME])
    draw_kept_runs(outcome.file)


def _form(outcome: SimulatedScenario, busy: bool) -> None:
    trace = outcome.trace
    span_s, rate_per_s = short(trace.span_s), short(trace.rate_per_s)
    text = page_text("measure.load", requests=len(trace), span_s=span_s, rate_per_s=rate_per_s)
    with st.form("measure_form", border=True):
        left, right = st.columns([4, 1], vertical_alignment="bottom")
        first = next(iter(additions().targets), "http://127.0.0.1:8000")
        url = left.text_input("Endpoint", first, key="measure_url", help=text)
        wanted = right.form_submit_button("Start", type="primary", disabled=busy, width="stretch")
        with st.expander("Model, dialect, API key"):
            model = st.text_input("Model", placeholder="the first served", key="measure_model")
            dialect = st.selectbox("Dialect", [_RECOGNISED, *DIALECTS], key="measure_dialect")
            key = st.text_input(
                "API key", type="password", key="measure_key", autocomplete="off",
                help="Passed to this load test alone, and never stored.",
            )  # fmt: skip
    if wanted and not busy:
        chosen = "" if dialect == _RECOGNISED else dialect
        _start(Endpoint(url.strip(), model.strip(), chosen, key), outcome)


def _start(endpoint: Endpoint, outcome: SimulatedScenario) -> None:
    if problem := _problem(endpoint):
        st.error(problem)
        return
    with problems_shown():
        endpoint = replace(endpoint, url=endpoint_url(endpoint.url))
        st.session_state[_TEST] = start(runs_folder(), endpoint, outcome, _slo_option(outcome))
        st.session_state[_OUTCOME] = outcome
        st.rerun()


def _problem(endpoint: Endpoint) -> str | None:
    """Return what is wrong with the form, as an option would be misread by the command line."""
    try:
        url, *targets = map(endpoint_url, [endpoint.url, *additions().targets])
    except LoadTestError as error:
        return f"Endpoint: {error}"
    if url not in targets and (targets or not is_loopback(st.get_option("server.address") or "")):
        named = ", ".join(additions().targets) or "the servers that --target names, which are none"
        return f"Endpoint: load tests of this dashboard may go to {named}"
    if endpoint.model.startswith("-"):
        return "Model: a name does not begin with '-'"
    return None


def _slo_option(outcome: SimulatedScenario) -> list[str]:
    given = {name: getattr(outcome.file.slo, f"{name}_ms") for name in ("ttft", "tpot", "e2e")}
    text = ",".join(f"{name}={ms:f}ms" for name, ms in given.items() if ms is not None)
    return ["--slo", text] if text else []


def _watched() -> None:
    """Draw the running load test every second, and the whole page once it has ended."""
    test: LoadTestProcess = st.session_state[_TEST]
    outcome: SimulatedScenario = st.session_state[_OUTCOME]
    test.refresh()
    if not test.running:
        st.rerun()
    state = test.state
    share = state["ended"] / state["total"] if state["total"] else 0.0
    st.progress(min(share, 1.0), f"{state['ended']} of {state['total']} requests have ended")
    st.button("Stop", on_click=test.stop, key="measure_stop")
    _counts(test)
    _charts(test.answered(), outcome)


def _counts(test: LoadTestProcess) -> None:
    answers, state = test.answered(), test.state
    counts = {
        "Elapsed, s": f"{state['elapsed_s']:.0f}",
        "Sent": f"{state['sent']}",
        "Failed": f"{state['failed']}",
        **dict(_median(answers, metric) for metric in ("ttft_s", "tpot_s")),
    }
    for column, counted in zip(st.columns(5), counts.items(), strict=True):
        column.metric(*counted)


def _median(answers: pd.DataFrame, name: str) -> tuple[str, str]:
    known = answers[name].dropna()
    median_s = float(known.median()) if len(known) else None
    metric = METRICS[name].fitting([median_s])
    value = metric.scaled(median_s)
    return f"{metric.label} p50, {metric.unit}", "-" if value is None else short(value)


def _charts(answers: pd.DataFrame, outcome: SimulatedScenario) -> None:
    """Draw the answers so far beside the prediction, as a report draws both at the end."""
    requests, slo = {"predicted": outcome.run.requests, "measured": answers}, outcome.file.slo.slo()
    looks = canvas.looks(requests)
    shown = {
        f"measure_live_{name}": over_time.latency_over_time(
            requests, name, looks, getattr(slo, name)
        )
        for name in _LATENCIES
    }
    charts_by_two(shown, simulated_source([outcome]))


def _ended(test: LoadTestProcess, outcome: SimulatedScenario) -> None:
    """Say how a load test ended, and open its run among those that are kept."""
    test.refresh()
    if failure := test.failure():
        st.error(escaped(failure[:1].upper() + failure[1:]))
    if not test.has_run:
        if test.answers:
            _charts(test.answered(), outcome)
    elif st.session_state.get(_SHOWN) is not test:
        st.session_state[_SHOWN] = test
        st.session_state[OPEN] = test.folder.name
    with st.expander("Output of the load test"):
        st.code(test.output(), language=None)
