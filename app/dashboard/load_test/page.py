"""Load test: the requests of the scenario against a live endpoint, beside the prediction."""

from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

import pandas as pd
import streamlit as st

from servetwin.app import figures
from servetwin.app.dashboard.charts import charts_by_two, downloads, table
from servetwin.app.dashboard.formatting import escaped, page_text, three_digits
from servetwin.app.dashboard.kept_runs.opened_runs import opened
from servetwin.app.dashboard.load_test.load_test_process import Endpoint, LoadTestProcess, start
from servetwin.app.dashboard.scenario.allowed_choices import runs_folder
from servetwin.app.dashboard.scenario.sidebar import current_scenario
from servetwin.app.dashboard.scenario_words import simulated_source
from servetwin.app.dashboard.simulations import SimulatedScenario, simulate_or_stop
from servetwin.app.dashboard.trust.trials import COMMAND, bundled, verdict_table
from servetwin.app.dashboard.widgets import draw_every, problems_shown
from servetwin.app.reports.run_words import source_line
from servetwin.app.verdict.claims import Comparison
from servetwin.app.words import METRICS
from servetwin.loadtest.dialects.servers import DIALECTS
from servetwin.loadtest.report.load_notes import load_warnings
from servetwin.loadtest.report.prompt_cache import prompt_cache_warning
from servetwin.sim.records.run import Run

_TEST, _OUTCOME = "load_test", "load_test_outcome"
_EVERY_S = 1.0
_RECOGNISED = "detected"
_LATENCIES = ("ttft_s", "tpot_s")


def page() -> None:
    """Draw the page."""
    st.title("Load test")
    outcome = simulate_or_stop(current_scenario())
    test: LoadTestProcess | None = st.session_state.get(_TEST)
    _form(outcome, busy=test is not None and test.running)
    if test is None:
        st.caption(page_text("load_test"))
        _example()
    elif test.running:
        draw_every(_EVERY_S, _watched)
    else:
        _ended(test, st.session_state[_OUTCOME])


def _form(outcome: SimulatedScenario, busy: bool) -> None:
    trace = outcome.trace
    span_s, rate_per_s = three_digits(trace.span_s), three_digits(trace.rate_per_s)
    text = page_text("load_test.trace", requests=len(trace), span_s=span_s, rate_per_s=rate_per_s)
    st.markdown(text)
    with st.form("load_test_form", border=True):
        url = st.text_input("Endpoint", "http://127.0.0.1:8000", key="load_test_url")
        left, middle, right = st.columns(3)
        model = left.text_input("Model", placeholder="the first served", key="load_test_model")
        dialect = middle.selectbox("Dialect", [_RECOGNISED, *DIALECTS], key="load_test_dialect")
        key = right.text_input(
            "API key", type="password", key="load_test_key", autocomplete="off",
            help="Passed to this load test alone, and never stored.",
        )  # fmt: skip
        wanted = st.form_submit_button("Start", type="primary", disabled=busy)
    if wanted and not busy:
        chosen = "" if dialect == _RECOGNISED else dialect
        _start(Endpoint(url.strip(), model.strip(), chosen, key), outcome)


def _start(endpoint: Endpoint, outcome: SimulatedScenario) -> None:
    if problem := _problem(endpoint):
        st.error(problem)
        return
    with problems_shown():
        st.session_state[_TEST] = start(runs_folder(), endpoint, outcome, _slo_option(outcome))
        st.session_state[_OUTCOME] = outcome
        st.rerun()


def _problem(endpoint: Endpoint) -> str | None:
    """Return what is wrong with the form, as an option would be misread by the command line."""
    parts = urlsplit(endpoint.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "Endpoint: give an address such as http://127.0.0.1:8000"
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
    st.button("Stop", on_click=test.stop, key="load_test_stop")
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
    return f"{metric.label} p50, {metric.unit}", "-" if value is None else three_digits(value)


def _charts(answers: pd.DataFrame, outcome: SimulatedScenario) -> None:
    looks, slo, shown = figures.looks(("predicted", "measured")), outcome.file.slo.slo(), []
    for metric in _LATENCIES:
        limit_s = getattr(slo, metric)
        figure = figures.live_latency(answers, outcome.run.requests, metric, looks, limit_s)
        title = f"{METRICS[metric].label} of each answer, and the prediction"
        shown.append((title, figure, f"load_test_{metric}"))
    charts_by_two(shown, simulated_source([outcome]))


def _ended(test: LoadTestProcess, outcome: SimulatedScenario) -> None:
    test.refresh()
    if failure := test.failure():
        st.error(escaped(failure[:1].upper() + failure[1:]))
    if test.has_run:
        with problems_shown():
            _result(test)
    elif test.answers:
        _charts(test.answered(), outcome)
    with st.expander("Output of the load test"):
        st.code(test.output(), language=None)


def _result(test: LoadTestProcess) -> None:
    runs, trials = opened(test.folder.parent, (test.folder.name,))
    kinds = {named.run.kind: named.run for named in runs}
    measured = kinds["loadtest"]
    counts = measured.requests["status"].value_counts()
    ended = ", ".join(f"{count} {status}" for status, count in counts.items())
    verdict = measured.extra["delivered"]["verdict"]
    st.markdown(f"**{ended}; {verdict}.** Kept as `{test.folder.name}` among the runs.")
    for line in _warnings(measured):
        st.warning(escaped(line))
    requests = {"predicted": kinds["simulation"].requests} if trials else {}
    source = source_line([kinds[kind] for kind in ("simulation", "loadtest") if kind in kinds])
    comparison = trials[0].comparison if trials else None
    _drawn({**requests, "measured": measured.requests}, comparison, source)
    downloads(measured.requests.drop(columns="chunk_s"), "load_test_requests")


def _example() -> None:
    """Draw the load test that comes with Servetwin beside its prediction."""
    (trial,) = bundled()[1]
    st.subheader("Example: a load test of the bundled engine")
    st.caption(f"Yours will be shown like this one, which `{COMMAND}` made on two shared vCPUs.")
    runs = {"predicted": trial.predicted.run, "measured": trial.measured[0].run}
    requests = {name: run.requests for name, run in runs.items()}
    _drawn(requests, trial.comparison, source_line(list(runs.values())))


def _drawn(requests: Mapping[str, pd.DataFrame], found: Comparison | None, source: str) -> None:
    if found:
        table(verdict_table(found.metrics), "Errors of the prediction, with verdicts.")
    looks, shown = figures.looks(("predicted", "measured")), []
    for metric in _LATENCIES:
        figure = figures.latency_cdf(requests, metric, looks)
        shown.append(
            (f"Distribution of {METRICS[metric].label}", figure, f"load_test_cdf_{metric}")
        )
    charts_by_two(shown, source)


def _warnings(run: Run) -> Iterator[str]:
    """Yield what the report of the command line warns of."""
    yield from load_warnings(run.extra["delivered"])
    if (cache := run.extra.get("prompt_cache")) and (line := prompt_cache_warning(cache)):
        yield line
