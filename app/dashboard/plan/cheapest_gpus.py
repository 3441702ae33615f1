"""The cheapest GPUs, as of ``servetwin plan``: a kind at a time, in the processes of a job."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from servetwin.app.dashboard.charts import chart, reserved, table
from servetwin.app.dashboard.formatting import escaped, page_text
from servetwin.app.dashboard.jobs.job import Job, job_of, watch_job
from servetwin.app.dashboard.jobs.simulated_items import trace_of
from servetwin.app.dashboard.scenario.allowed_choices import places
from servetwin.app.dashboard.scenario.uploads import packed, result_keys
from servetwin.app.dashboard.widgets import control, or_stop
from servetwin.app.figures import over_time
from servetwin.app.plan.plan import PlannedDeployment, plan, rank
from servetwin.app.plan.printed_plan import day_row, day_texts, plan_row
from servetwin.app.reports.how_many import device_words
from servetwin.app.scenario.files.scenario_file import ScenarioFile
from servetwin.app.scenario.options.simulations import PlanOptions
from servetwin.app.scenario.prices import FORM, LISTED, parse_prices
from servetwin.app.words import RESOURCES, in_brackets, target_words
from servetwin.sim.experiments.capacity import SLOTarget
from servetwin.workloads.errors import ServetwinError

_JOB = "plan_cheapest"
# Columns that a window of 900 px shows; the others stand above the command, and in the files.
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class GpuQuestion:
    """A kind of GPU, by ``options``, for the load and the SLO of a scenario."""

    file: ScenarioFile
    model: str
    options: PlanOptions
    given: bytes | None = None


def show(base: ScenarioFile, target: SLOTarget, place: DeltaGenerator) -> None:
    """Draw what is chosen, begin a plan for each kind of GPU unless they are there, and draw those
    that have ended."""
    usual = LISTED["usual"].split(",")
    gpus = control("plan_gpus", usual, place) or usual
    day = control("plan_rule").strip() if control("plan_day") else None
    with st.expander("Prices, budget, spares"):
        price = control("plan_price", help=f"What you pay: {FORM}. Without it: list prices.")
        left, right = st.columns(2)
        budget, spares = control("plan_budget", place=left), control("plan_spares", 0, right)
    or_stop(lambda: parse_prices(price, "price").over_listed())
    model = base.deployment.model or places()[base.deployment.profile[0]][0]
    options = PlanOptions(
        price=price.strip() or None, budget=budget, spares=spares,
        server=base.deployment.server or "vllm", processes=1, day=day,
    )  # fmt: skip
    given = packed(base.workload.source)
    items = [GpuQuestion(base, model, replace(options, gpu=(gpu,)), given) for gpu in gpus]
    (key,) = result_keys([base])
    keys = [f"plan {one.model} {one.options} {key}" for one in items]
    job_of(_JOB, items, lambda: Job(plan_on, items, keys, "search"))
    rate_per_s = base.workload.rate_per_s
    goal = target_words(target) + ("" if rate_per_s is None else f" at {rate_per_s:g} per second")
    currency = "" if options.price else "US$ "
    with reserved("cheapest"):
        watch_job(_JOB, lambda job: _draw(job, gpus, target, goal, currency))
        st.caption(escaped(page_text("plan.rests", model=model, prices=LISTED["about"])))


def plan_on(one: GpuQuestion) -> PlannedDeployment:
    """Return the cheapest servers of one kind of GPU, or why there are none."""
    file = one.file
    try:
        trace, slo = trace_of(file, one.given), file.slo
        planned = plan(
            trace, one.model, slo.slo(), attainment=slo.attainment, seed=file.seed,
            options=one.options,
        )  # fmt: skip
    except (ServetwinError, ArithmeticError) as error:
        return PlannedDeployment(one.options.gpu[0], str(error))
    return planned.rows[0]


def _draw(
    job: "Job[Any, Any]", gpus: Sequence[str], target: SLOTarget, goal: str, currency: str
) -> None:
    """Draw the answer in a sentence, a row for each kind of GPU, and the commands."""
    rows = sorted(job.results.values(), key=rank)
    fitting = [row for row in rows if not row.problem]
    ended = {row.gpu for row in rows}
    waiting = [PlannedDeployment(gpu) for gpu in gpus if gpu not in ended]
    if fitting:
        if fitting[0].day:
            _draw_day(fitting, target, currency)
        st.subheader(escaped(headline(fitting[0], goal, currency)), anchor=False)
    if fitting or waiting:
        frame = plan_table([*fitting, *waiting], target)
        shown = list(frame)[:_SHOWN]
        table(frame, "Kinds of GPUs, the cheapest first.", "plan", column_order=shown)
    if fitting:
        _commands(fitting, currency)
    for row in rows[len(fitting) :]:
        st.caption(escaped(f"{row.gpu}: {row.problem}"))


def _draw_day(rows: Sequence[PlannedDeployment], target: SLOTarget, currency: str) -> None:
    """Draw the cheapest fleet in a sentence, over the day, and beside those of the other GPUs."""
    days = {row.gpu: row.day for row in rows if row.day}
    best = days[rows[0].gpu]
    answer, options, checks = day_texts(rows[0], best, target, currency)
    st.subheader(escaped(answer), anchor=False)
    st.code(options, language="bash", wrap_lines=True)
    fleets = {"fleet": best.fleet, "static fleet": best.static}
    courses = {name: pd.DataFrame(fleet.course) for name, fleet in fleets.items()}
    chart(over_time.day_over_time(courses, best.price), "plan_day_chart")
    cells = pd.DataFrame([day_row(gpu, day) for gpu, day in days.items()])
    table(cells, "The fleet of each kind of GPU.", "plan_day")
    st.caption(escaped(checks))


def headline(best: PlannedDeployment, goal: str, currency: str = "") -> str:
    """Return the answer in a sentence; ``currency`` stands before the price where it is known."""
    one = "holds" if best.gpus == 1 else "hold"
    text = f"{device_words(best.gpu, best.gpus)} ({best.servers:,} x {best.layout}) {one} {goal}"
    if best.cost_per_h is None:
        return f"{text}; price unknown"
    return f"{text}, for {currency}{best.cost_per_h:,.2f} per hour"


def plan_table(rows: Iterable[PlannedDeployment], target: SLOTarget) -> pd.DataFrame:
    """Return a row for each kind of GPU; that of one without a plan yet is empty."""
    cells = [plan_row(row, target) if row.servers else {"GPUs": row.gpu} for row in rows]
    return pd.DataFrame(cells, columns=list(plan_row(PlannedDeployment(""), target)))


def _commands(rows: Sequence[PlannedDeployment], currency: str) -> None:
    """Draw the command that starts a server, and the manifest, by kind of GPU."""
    tabs = st.tabs([f"{row.gpus:,} x {row.gpu}" for row in rows])
    for row, tab in zip(rows, tabs, strict=True):
        with tab:
            limit = f"Limited by {RESOURCES[row.limited_by]}. " if row.limited_by else ""
            cost = f"A million tokens: {currency}{in_brackets(row.cost_per_million_tokens)}. "
            st.caption(escaped(f"{limit}{cost}Step times: {row.evidence}."))
            st.code(row.command, language="bash", wrap_lines=True)
            st.download_button(
                "Manifest for Kubernetes", row.manifest, f"{row.gpu}.yaml", on_click="ignore",
                key=f"manifest_{row.gpu}",
            )  # fmt: skip
