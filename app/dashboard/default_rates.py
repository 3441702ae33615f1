"""The rates that a grid begins with: up to that at which the scenario's servers are saturated."""

import streamlit as st

from servetwin.app.dashboard.jobs.turns import Rank
from servetwin.app.dashboard.scenario.controls import CONTROLS
from servetwin.app.dashboard.scenario.uploads import uploads
from servetwin.app.dashboard.simulations import TURNS
from servetwin.app.dashboard.widgets import end_if_stale
from servetwin.app.scenario.files.scenario_file import ScenarioFile
from servetwin.sim.experiments.capacity import admitting_all, all_at_once, completions_per_s
from servetwin.sim.experiments.predict import run_once
from servetwin.workloads.errors import ServetwinError
from servetwin.workloads.trace import Trace
from servetwin.workloads.transform import limit

_SHARES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 1.0)
_ELSE_PER_S = 40.0
"""Where the saturation cannot be found."""
_REQUESTS = 1000


def default_rates(page: str, base: ScenarioFile) -> str:
    """Return the rates for the scenario with which a session first opens the ``page``."""
    key = f"{page}_default_rates"
    if key not in st.session_state:
        given = uploads().get(base.workload.source)
        digest, trace = (given.digest, given.trace) if given else ("", None)
        st.session_state[key] = rates_up_to(
            _saturation_per_s(base.model_dump_json(), digest, trace)
        )
    rates: str = st.session_state[key]
    return rates


def rates_up_to(saturation_per_s: float) -> str:
    """Return shares of a rate, to two digits, as far as the control of rates takes them."""
    control = CONTROLS["rate"]
    rates = (float(f"{share * saturation_per_s:.2g}") for share in _SHARES)
    return ", ".join(
        dict.fromkeys(f"{min(max(rate, control.low), control.high):g}" for rate in rates)
    )


@st.cache_resource(max_entries=64, show_spinner=False)
def _saturation_per_s(text: str, digest: str, _given: Trace | None) -> float:
    file = ScenarioFile.model_validate_json(text)
    with TURNS.turn(Rank.FIRST_ANSWER, end_if_stale) as turn:
        try:
            given = {file.workload.source: _given} if _given else None
            trace = all_at_once(limit(file.workload.trace(file.seed, given), _REQUESTS))
            scenario = admitting_all(file.build(trace))
            run = run_once(trace, scenario, seed=file.seed, on_arrival=lambda _: turn.give_way())
            return completions_per_s(run, trace.source)
        except (ServetwinError, ArithmeticError):  # what cannot be, the page says by itself
            return _ELSE_PER_S
