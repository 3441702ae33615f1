"""How many: the servers, users or requests per second with which an SLO holds."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import streamlit as st

from servetwin.app import figures
from servetwin.app.dashboard.charts import chart
from servetwin.app.dashboard.compare.policy_comparison import OWN_LABEL, policy_labels
from servetwin.app.dashboard.downloads import downloads
from servetwin.app.dashboard.formatting import escaped
from servetwin.app.dashboard.how_many.answers import answers, load_words
from servetwin.app.dashboard.how_many.candidates import (
    OWN_SERVER,
    Candidate,
    at_load,
    candidates,
    is_example,
    server_names,
)
from servetwin.app.dashboard.how_many.question import METRICS_OF, Limit, asked, prices_of
from servetwin.app.dashboard.how_many.search_job import Asked, Search, run_search
from servetwin.app.dashboard.jobs.job import Job, find_job, start_job, watch_job
from servetwin.app.dashboard.pictures.simulated_source import grid_source
from servetwin.app.dashboard.scenario.controls import CONTROLS
from servetwin.app.dashboard.scenario.sidebar import current_scenario
from servetwin.app.dashboard.scenario.uploads import result_keys, uploads
from servetwin.app.dashboard.slo_share import share_input
from servetwin.app.dashboard.widgets import bound, or_stop
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
from servetwin.app.scenario.prices import FORM, Prices
from servetwin.sim.experiments.how_many import REPLICATIONS, CountSearch

_FIRST, _DRAWS = "how_many", "how_many_draws"
_WHATS: dict[str, What] = {
    "GPUs": "devices", "replicas": "replicas", "users": "users", "requests/s": "rate"
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Page:
    """All that the page asks: what has other answers is another question."""

    base: ScenarioFile
    asked: Asked
    candidates: tuple[Candidate, ...]
    digest: str


def page() -> None:
    """Draw the page: its question, then the answer as it is found."""
    st.title("How many")
    st.caption(
        "How many servers hold a limit for the requests of the scenario at the side, or how many "
        "users or requests per second do its servers take?"
    )
    base = current_scenario()
    limit, what, think = _limit(base)
    rate_per_s, policies, servers, price = _candidates(base, what)
    question = or_stop(lambda: asked(base, limit, what, think))
    prices = or_stop(lambda: prices_of(price))
    load = at_load(base, rate_per_s if what in FEWEST else base.workload.rate_per_s)
    found = or_stop(lambda: candidates(load, policies, servers))
    upload = uploads().get(base.workload.source)
    page = _Page(load, question, tuple(found), upload.digest if upload else "")
    _begin(page)
    if what in FEWEST and is_example(base, rate_per_s):
        st.info(
            f"An example: the default scenario at {load.workload.rate_per_s:g} requests per "
            "second, more than one server holds. Upload your own trace at the side, or change the "
            "scenario or the rate."
        )
    name = _FIRST if _is_unfinished(_FIRST) else _DRAWS
    watch_job(name, lambda _: _draw(page, prices))
    job = find_job(name)
    if job is not None and job.was_stopped:
        st.button("Go on", on_click=_go_on, args=(page,))


def _limit(base: ScenarioFile) -> tuple[Limit, What, str]:
    """Draw what must hold, and what is counted."""
    what = st.segmented_control(
        "How many", list(_WHATS), default="GPUs", required=True, **bound("how_many_what"),
        help="GPUs are replicas times the devices of one; users (or agents) each wait for every "
        "answer.",
    )  # fmt: skip
    metric_, share_, limit_, think_ = st.columns([2, 2, 2, 2], vertical_alignment="bottom")
    metric = metric_.selectbox(
        "With a limit on", list(METRICS_OF), **bound("how_many_metric"),
        help="One latency, or every limit of the SLO at the side.",
    )  # fmt: skip
    with share_:
        share = share_input(
            "how_many_share", "For % of the requests", base,
            "99 is the p99 of the latency: 99 of 100 requests are within the limit.", low=50.0,
        )  # fmt: skip
    own_ms = getattr(base.slo, (METRICS_OF[metric] or "").replace("_s", "_ms"), None)
    limit_ms = limit_.number_input(
        "At most, ms", 0.1, CONTROLS["ttft_ms"].high, None, 10.0, format="%g",
        placeholder=f"{own_ms:g} (SLO)" if own_ms else "as in the SLO",
        disabled=not METRICS_OF[metric], help="Empty: as in the SLO at the side.",
        **bound("how_many_limit_ms"),
    )  # fmt: skip
    think = ""
    if what == "users":
        think = think_.text_input(
            "Think time, s", placeholder="none, or exponential:mean=2", **bound("how_many_think"),
            help="Between an answer and the next request of a user: 2, exponential:mean=2, "
            "lognormal:median=2,sigma=1. Turns of a conversation keep their own pauses.",
        )  # fmt: skip
    return Limit(metric, share, limit_ms), _WHATS[what], think


def _candidates(base: ScenarioFile, what: What) -> tuple[float | None, list[str], list[str], str]:
    """Draw the rate, the candidates and the prices."""
    rate_, policies_, servers_, price_ = st.columns([2, 2, 2, 2], vertical_alignment="bottom")
    rate_per_s = None
    if what in FEWEST:
        own = base.workload.rate_per_s
        rate_per_s = rate_.number_input(
            "Requests per second", 0.1, 100_000.0, None, 10.0, format="%g",
            placeholder="as the trace" if own is None else f"{own:g} (scenario)",
            help="Of all servers together. Empty: as in the scenario at the side.",
            **bound("how_many_rate"),
        )  # fmt: skip
    policies = policies_.multiselect(
        "Policies", policy_labels(), [OWN_LABEL], **bound("how_many_policies"),
        accept_new_options=True, help="Choose, or type as for `replay compare`.",
    )  # fmt: skip
    servers = servers_.multiselect(
        "Servers", server_names(base), [OWN_SERVER], **bound("how_many_servers"),
        help="Profiles; with a data sheet at the side also its model on other devices.",
    )  # fmt: skip
    price = price_.text_input(
        "Price of a device-hour", placeholder="2.5, or h100=2.5, l40s=0.9",
        help=f"What you pay, in any currency: {FORM}. Without it there is no cost.",
        **bound("how_many_price"),
    )  # fmt: skip
    return rate_per_s, policies, servers, price


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
        found = [(p, r) for p, r in first.results.items() if isinstance(r, CountSearch)]
        _start(_DRAWS, page, [(place, n, one) for n in numbers for place, one in found])


def _start(
    name: str, page: _Page, searches: Sequence[tuple[int, int, CountSearch | None]]
) -> "Job[Search, object]":
    given = uploads().get(page.base.workload.source)
    trace = given.trace if given else None
    items = [
        Search(page.candidates[place].file, page.asked, number, first, trace, place)
        for place, number, first in searches
    ]
    files = result_keys([item.file for item in items])
    keys = [f"{s.asked.key()} {s.number} {key}" for s, key in zip(items, files, strict=True)]
    return start_job(name, run_search, items, page, keys)


def _is_unfinished(name: str) -> bool:
    job = find_job(name)
    return job is not None and (job.is_running or job.was_stopped or job.problem is not None)


def _go_on(page: _Page) -> None:
    """Begin the job that was stopped again: what it has found is kept."""
    jobs = st.session_state["jobs"]
    jobs.pop(_FIRST if _is_unfinished(_FIRST) else _DRAWS, None)


def _draw(page: _Page, prices: Prices) -> None:
    first, draws = find_job(_FIRST), find_job(_DRAWS)
    if first is None:
        return
    fresh = draws if draws is not None and draws.note == page else None
    found = answers(page.candidates, page.asked, first, fresh, prices)
    if not found:
        return
    target = page.asked.target
    st.subheader(escaped(headline(found, target, load_words(page.base))), anchor=False)
    chosen = best(found) or found[0]
    requests = next((p.requests for a in found for p in a.points if p.requests), 0)
    said = (spread_sentence(chosen), few_words(target, requests) if requests else "")
    st.markdown(" ".join(escaped(text) for text in said if text))
    for answer in found:
        if answer.problem:
            st.error(f"{escaped(answer.label)}: {escaped(answer.problem)}")
    _figures(found, page)


def _figures(found: Sequence[Answer], page: _Page) -> None:
    target, what = page.asked.target, page.asked.what
    shown = [answer for answer in found if answer.points]
    if not shown:
        return
    looks = figures.looks(candidate.label for candidate in page.candidates)
    figure = figures.count_curves(shown, target, HEADS[what], looks)
    chart(figure, "how_many_chart", grid_source(page.base))
    cut = " Higher values are cut off; the table has them." if figures.is_cut(shown) else ""
    st.caption(
        "Filled symbols hold the limit, open ones miss it or are overloaded; bars are draws of "
        f"other traffic of this kind.{cut}"
    )
    frame = pd.DataFrame(table_rows(found, target))
    columns = {head: st.column_config.Column(help=said) for head, said in HEAD_MEANINGS.items()}
    st.dataframe(frame, hide_index=True, key="how_many_table", column_config=columns)
    downloads(frame, "how-many")
