"""How many: the servers, users or requests per second with which an SLO holds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd
import streamlit as st

from servetwin.app import figures
from servetwin.app.dashboard.charts import chart, table
from servetwin.app.dashboard.compare.policy_comparison import OWN_LABEL, policy_labels
from servetwin.app.dashboard.formatting import escaped, page_text
from servetwin.app.dashboard.how_many import question
from servetwin.app.dashboard.how_many.search_job import Query, Search, run_search
from servetwin.app.dashboard.jobs.job import Job, find_job, forget_job, start_job, watch_job
from servetwin.app.dashboard.scenario.sidebar import current_scenario
from servetwin.app.dashboard.scenario.uploads import given, packed, result_keys
from servetwin.app.dashboard.scenario_words import grid_source
from servetwin.app.dashboard.widgets import control, or_stop, share_input
from servetwin.app.reports.how_many import (
    HEAD_MEANINGS,
    HEADS,
    few_words,
    headline,
    spread_sentence,
    table_rows,
)
from servetwin.app.scenario.answers import FEWEST, Answer, What, best
from servetwin.app.scenario.files.scenario_file import ScenarioFile
from servetwin.app.scenario.prices import FORM, Prices, parse_prices
from servetwin.sim.experiments.how_many import REPLICATIONS, CountSearch

_FIRST, _DRAWS = "how_many", "how_many_draws"
_WHATS: dict[str, What] = {
    "GPUs": "devices", "replicas": "replicas", "users": "users", "requests/s": "rate"
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Page:
    """All that the page asks: what has other answers is another question."""

    base: ScenarioFile
    query: Query
    candidates: tuple[question.Candidate, ...]
    digest: str


def page() -> None:
    """Draw the page: its question, then the answer as it is found."""
    st.title("How many")
    st.caption(page_text("how_many"))
    base = current_scenario()
    what, ask = _limit(base)
    first, second, third, last = st.columns(4, vertical_alignment="bottom")
    scenario_rate_per_s = base.workload.rate_per_s
    rate_per_s = None
    if what in FEWEST:
        shown = (
            "as the trace" if scenario_rate_per_s is None else f"{scenario_rate_per_s:g} (scenario)"
        )
        rate_per_s = control("how_many_rate", place=first, placeholder=shown)
    policies = control("how_many_policies", [OWN_LABEL], second, options=policy_labels())
    names = question.server_names(base)
    servers = control("how_many_servers", [question.OWN_SERVER], third, options=names)
    help_ = f"What you pay, in any currency: {FORM}. Without it there is no cost."
    price = control("how_many_price", place=last, help=help_)
    query = or_stop(ask)
    prices = or_stop(lambda: parse_prices(price, "price"))
    load = question.at_load(base, rate_per_s if what in FEWEST else scenario_rate_per_s)
    choices = or_stop(lambda: question.candidates(load, policies, servers))
    page = _Page(load, query, choices, given(base.workload.source)[0])
    _begin(page)
    if what in FEWEST and question.is_example(base, rate_per_s):
        st.info(page_text("how_many.example", rate=load.workload.rate_per_s))
    name = _FIRST if _is_unfinished(_FIRST) else _DRAWS
    watch_job(name, lambda _: _draw(page, prices))
    if (job := find_job(name)) and job.was_stopped:
        st.button("Go on", on_click=forget_job, args=(name,))


def _limit(base: ScenarioFile) -> tuple[What, Callable[[], Query]]:
    """Draw what is counted, and what must hold; return the first, and what makes the query."""
    what = _WHATS[control("how_many_what")]
    first, second, third, last = st.columns(4, vertical_alignment="bottom")
    metric = control("how_many_metric", place=first)
    share = share_input("how_many_share", base, place=second)
    own_ms = getattr(base.slo, (question.METRICS_OF[metric] or "").replace("_s", "_ms"), None)
    limit_ms = control(
        "how_many_limit_ms", place=third, disabled=not question.METRICS_OF[metric],
        placeholder=f"{own_ms:g} (SLO)" if own_ms else "as in the SLO",
    )  # fmt: skip
    think = control("how_many_think", place=last) if what == "users" else ""
    return what, partial(question.query_of, base, metric, share, limit_ms, what, think)


def _begin(page: _Page) -> None:
    """Begin what is not there yet: the first searches, then those of the replications."""
    first = find_job(_FIRST)
    if first is None or first.note != page:
        if draws := find_job(_DRAWS):
            draws.stop()
        first = _start(_FIRST, page, [(place, 0, None) for place in range(len(page.candidates))])
    if first.is_running or first.was_stopped or first.problem:
        return
    draws = find_job(_DRAWS)
    if draws is None or draws.note != page:
        numbers = range(1, REPLICATIONS + 1)
        searches = [(p, r) for p, r in first.results.items() if isinstance(r, CountSearch)]
        _start(_DRAWS, page, [(place, n, one) for n in numbers for place, one in searches])


def _start(
    name: str, page: _Page, searches: Sequence[tuple[int, int, CountSearch | None]]
) -> "Job[Search, object]":
    trace = packed(page.base.workload.source)
    items = [
        Search(page.candidates[place].file, page.query, number, first, trace, place)
        for place, number, first in searches
    ]
    files = result_keys([item.file for item in items])
    keys = [f"{s.query.key()} {s.number} {key}" for s, key in zip(items, files, strict=True)]
    return start_job(name, run_search, items, page, keys)


def _is_unfinished(name: str) -> bool:
    job = find_job(name)
    return job is not None and (job.is_running or job.was_stopped or job.problem is not None)


def _draw(page: _Page, prices: Prices) -> None:
    first, draws = find_job(_FIRST), find_job(_DRAWS)
    if first is None:
        return
    fresh = draws if draws is not None and draws.note == page else None
    answers = question.answers(page.candidates, page.query, first, fresh, prices)
    if not answers:
        return
    target = page.query.target
    load = question.load_words(page.base)
    st.subheader(escaped(headline(answers, target, load)), anchor=False)
    chosen = best(answers) or answers[0]
    requests = next((p.requests for a in answers for p in a.points if p.requests), 0)
    sentences = (spread_sentence(chosen), few_words(target, requests) if requests else "")
    st.markdown(" ".join(escaped(text) for text in sentences if text))
    for answer in answers:
        if answer.problem:
            st.error(f"{escaped(answer.label)}: {escaped(answer.problem)}")
    _figures(answers, page)


def _figures(found: Sequence[Answer], page: _Page) -> None:
    shown = [answer for answer in found if answer.points]
    if not shown:
        return
    target = page.query.target
    looks = figures.looks(candidate.label for candidate in page.candidates)
    figure = figures.count_curves(shown, target, HEADS[page.query.what], looks)
    chart(figure, "how_many_chart", grid_source(page.base))
    cut = " Higher values are cut off; the table has them." if figures.is_cut(shown) else ""
    st.caption(page_text("how_many.symbols", cut=cut))
    frame = pd.DataFrame(table_rows(found, target))
    columns = {head: st.column_config.Column(help=help_) for head, help_ in HEAD_MEANINGS.items()}
    alt = "The answer of each candidate."
    table(frame, alt, "how-many", key="how_many_table", column_config=columns)
