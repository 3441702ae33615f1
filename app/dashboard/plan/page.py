"""Plan: the cheapest GPUs with which the SLO holds; of chosen servers, how many hold it, or how
many users or requests per second they serve."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from servetwin.app.dashboard.charts import chart, downloads, reserved, table
from servetwin.app.dashboard.explore import comparison
from servetwin.app.dashboard.formatting import escaped, page_text
from servetwin.app.dashboard.jobs.job import Job, find_job, job_of, watch_job
from servetwin.app.dashboard.jobs.simulated_items import with_rate
from servetwin.app.dashboard.load_grid import finished_points, load_job
from servetwin.app.dashboard.plan import cheapest_gpus, question
from servetwin.app.dashboard.plan.search_job import Query, Search, run_search
from servetwin.app.dashboard.scenario.allowed_choices import offered
from servetwin.app.dashboard.scenario.controls import PAGE_CONTROLS
from servetwin.app.dashboard.scenario.sidebar import current_scenario, show_scenario
from servetwin.app.dashboard.scenario.uploads import given, packed, result_keys
from servetwin.app.dashboard.scenario_words import grid_source
from servetwin.app.dashboard.widgets import control, or_stop
from servetwin.app.figures import canvas, frontier, load_curves
from servetwin.app.reports.how_many import (
    HEAD_MEANINGS,
    HEADS,
    few_words,
    headline,
    spread_sentence,
    table_rows,
)
from servetwin.app.reports.sweep import conclusion
from servetwin.app.scenario.answers import FEWEST, Answer, What
from servetwin.app.scenario.files.scenario_file import ScenarioFile
from servetwin.app.scenario.prices import FORM, Prices, parse_prices
from servetwin.sim.experiments import sweep
from servetwin.sim.experiments.how_many import REPLICATIONS, CountSearch

_FIRST, _DRAWS, _LOADS = "plan", "plan_draws", "plan_loads"
_FRONTIER = "plan_frontier"
_CHEAPEST = PAGE_CONTROLS["plan_what"].choices[0]
_WHATS: dict[str, What] = {
    _CHEAPEST: "devices", "GPUs": "devices", "replicas": "replicas", "users": "users",
    "requests/s": "rate",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Plan:
    """All that the page asks: what has other answers is another question."""

    base: ScenarioFile
    query: Query
    candidates: tuple[question.Candidate, ...]
    digest: str


def page() -> None:
    """Draw the page: its question, then the answer as it is found."""
    base = current_scenario()
    view = control("plan_what")
    what = _WHATS[view]
    left, right = st.columns(2, vertical_alignment="bottom")
    rate_per_s, think = base.workload.rate_per_s, ""
    if what in FEWEST:
        shown = "as the trace" if rate_per_s is None else f"{rate_per_s:g} (scenario)"
        rate_per_s = control("plan_rate", place=left, placeholder=shown)
    elif what == "users":
        think = control("plan_think", place=left)
    query = or_stop(lambda: question.query_of(base, what, think))
    load = base if rate_per_s is None else with_rate(base, rate_per_s)
    if view == _CHEAPEST:
        cheapest_gpus.show(load, query.target, right)
    else:
        _number(load, query, right)


def _number(load: ScenarioFile, query: Query, place: DeltaGenerator) -> None:
    """Draw how many there are of the servers that are chosen, as it is found."""
    names = [question.OWN_SERVER, *offered()["profile"]]
    servers = control("plan_servers", [question.OWN_SERVER], place, options=names)
    with st.expander("Policies and prices"):
        policies = comparison.chosen(load)
        help_ = f"What you pay, in any currency: {FORM}. Without it there is no cost."
        price = control("plan_price", help=help_)
    prices = or_stop(lambda: parse_prices(price, "price"))
    choices = or_stop(lambda: question.candidates(load, list(policies), servers))
    plan = _Plan(load, query, choices, given(load.workload.source)[0])
    name = _begin(plan)
    with reserved("plan"):
        watch_job(name, lambda _: _draw(plan, prices))
    job = find_job(name)
    if job is not None and name != _LOADS and not _is_unfinished(job):
        st.rerun()  # it ended while it was drawn: nothing else would begin the next


def _begin(plan: _Plan) -> str:
    """Begin what is not there yet, one after the other: the first searches, those of the
    replications, the loads of the frontier. Return the name of the job to wait for."""
    first = job_of(_FIRST, plan, lambda: _first_searches(plan))
    if _is_unfinished(first):
        return _FIRST
    draws = job_of(_DRAWS, plan, lambda: _draws(plan, first.results))
    if _is_unfinished(draws):
        return _DRAWS
    load_job(_LOADS, dict(plan.candidates))
    return _LOADS


def _first_searches(plan: _Plan) -> "Job[Search, object]":
    for name in (_DRAWS, _LOADS):
        if job := find_job(name):
            job.stop()
    return _searches(plan, [(place, 0, None) for place in range(len(plan.candidates))])


def _draws(plan: _Plan, results: Mapping[int, object]) -> "Job[Search, object]":
    numbers = range(1, REPLICATIONS + 1)
    first = [(place, one) for place, one in results.items() if isinstance(one, CountSearch)]
    return _searches(plan, [(place, n, one) for n in numbers for place, one in first])


def _searches(
    plan: _Plan, searches: Sequence[tuple[int, int, CountSearch | None]]
) -> "Job[Search, object]":
    trace = packed(plan.base.workload.source)
    items = [
        Search(plan.candidates[place][1], plan.query, number, first, trace, place)
        for place, number, first in searches
    ]
    files = result_keys([item.file for item in items])
    keys = [f"{s.query.key()} {s.number} {key}" for s, key in zip(items, files, strict=True)]
    return Job(run_search, items, keys, "search")


def _is_unfinished(job: "Job[Search, object]") -> bool:
    return job.is_running or job.was_stopped or job.problem is not None


def _draw(plan: _Plan, prices: Prices) -> None:
    first, draws = find_job(_FIRST), find_job(_DRAWS)
    if first is None:
        return
    fresh = draws if draws is not None and draws.note == plan else None
    answers = question.ranked(question.answers(plan.candidates, plan.query, first, fresh, prices))
    if not answers:
        return
    target = plan.query.target
    st.subheader(escaped(headline(answers, target, question.load_words(plan.base))), anchor=False)
    requests = next((p.requests for a in answers for p in a.points if p.requests), 0)
    sentences = (spread_sentence(answers[0]), few_words(target, requests) if requests else "")
    st.markdown(" ".join(escaped(text) for text in sentences if text))
    for answer in answers:
        if answer.problem:
            st.error(f"{escaped(answer.label)}: {escaped(answer.problem)}")
    _figures(answers, plan)
    if find_job(_LOADS) and fresh is not None and not _is_unfinished(fresh):
        _frontier(plan)


def _figures(answers: Sequence[Answer], plan: _Plan) -> None:
    shown = [answer for answer in answers if answer.points]
    if not shown:
        return
    target = plan.query.target
    looks = canvas.looks(label for label, _ in plan.candidates)
    figure = load_curves.count_curves(shown, target, HEADS[plan.query.what], looks)
    chart(figure, "plan_chart", grid_source(plan.base))
    cut = " Higher values are cut off; the table has them." if load_curves.is_cut(shown) else ""
    st.caption(page_text("plan.symbols", cut=cut))
    frame = pd.DataFrame(table_rows(answers, target))
    columns = {head: st.column_config.Column(help=help_) for head, help_ in HEAD_MEANINGS.items()}
    table(frame, "The answer of each candidate.", key="plan_table", column_config=columns)
    downloads(frame, "plan")


def _frontier(plan: _Plan) -> None:
    """Draw throughput against the speed for a user, with a conclusion; a click loads a point."""
    job = find_job(_LOADS)
    if job is None or (points := finished_points(job)).empty:
        return
    target = plan.query.target
    points["on_front"] = sweep.on_front(points, sweep.INTERACTIVITY, sweep.GOODPUT)
    st.markdown(f"**{escaped(conclusion(points, target.attainment))}**")
    figure = frontier.frontier(points, target)
    options = {} if job.is_running else {"on_select": _load, "selection_mode": "points"}
    chart(
        figure, _FRONTIER if options else f"{_FRONTIER}_so_far", grid_source(plan.base), **options
    )
    st.caption(page_text("frontier.symbols", share=100 * target.attainment))
    downloads(points, "frontier")


def _load() -> None:
    """Show the scenario of the clicked point at the side."""
    job = find_job(_LOADS)
    picked = st.session_state[_FRONTIER]["selection"]["points"]
    if job is None or not picked or "customdata" not in picked[0]:
        return
    custom = picked[0]["customdata"]
    place = int(custom[0] if isinstance(custom, list) else custom)
    show_scenario(job.items[place].file)
