"""A link holds what differs from the default scenario; a broken one says what is wrong with it.

Streamlit drops what its widgets cannot take, so the link is read before they are drawn.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import streamlit as st
from pydantic import Field

from servetwin.app.dashboard.formatting import escaped, plain
from servetwin.app.dashboard.scenario.controls import (
    CONTROLS,
    DATA_SHEET,
    Control,
    as_controls,
    from_controls,
    workload_names,
)
from servetwin.app.dashboard.scenario.sidebar import show_scenario
from servetwin.app.dashboard.scenario.uploads import remember_columns, uploads
from servetwin.app.scenario.files.scenario_file import ScenarioFile
from servetwin.workloads.errors import ServetwinError, did_you_mean

_PROBLEMS, _FAULTY = "link_problems", "link_faulty"
_MOST_CHARACTERS = 2_000
"""Of one value of a link."""
_TEXTS = ("techniques", "without", "efficiency", "set")

PAGE_CONTROLS: dict[str, Control] = {
    "compare_policies": Control(list[str], many=True),
    "latencies": Control(list[Literal["mean", "p50", "p90", "p99"]], many=True),
    "frontier_max_seqs": Control(str),
    "frontier_rate": Control(str),
    "frontier_replicas": Control(str),
    "frontier_share": Control(Annotated[float, Field(ge=1, le=100)]),
    "frontier_token_budget": Control(str),
    "frontier_y": Control(Literal["goodput", "output throughput"]),
    "how_many_limit_ms": Control(Annotated[float, Field(ge=0.1, le=3_600_000)]),
    "how_many_metric": Control(Literal["TTFT", "TPOT", "E2E latency", "the whole SLO"]),
    "how_many_policies": Control(list[str], many=True),
    "how_many_price": Control(str),
    "how_many_rate": Control(Annotated[float, Field(ge=0.1, le=100_000)]),
    "how_many_servers": Control(list[str], many=True),
    "how_many_share": Control(Annotated[float, Field(ge=50, le=100)]),
    "how_many_think": Control(str),
    "how_many_what": Control(Literal["GPUs", "replicas", "users", "requests/s"]),
    "policies_rates": Control(str),
    "policies_share": Control(Annotated[float, Field(ge=1, le=100)]),
    "timeline_request": Control(str),
    "timeline_run": Control(str),
    "timeline_show": Control(str),
    "timeline_window": Control(list[float], many=True),
    "trust_metric": Control(str),
    "trust_profile": Control(str),
    "trust_trial": Control(str),
    "runs_open": Control(str),
    "techniques_batch": Control(Annotated[int, Field(ge=1, le=512)]),
    "techniques_chosen": Control(str),
    "techniques_context": Control(Annotated[int, Field(ge=128, le=32_768)]),
    "techniques_hardware": Control(str),
    "techniques_model": Control(str),
    "techniques_show": Control(Literal["Effects", "Quality", "Roofline", "Memory", "Tables"]),
}
"""Controls of single pages that a link may hold beside the controls of the scenario."""


def complain_of_link() -> None:
    """Take what cannot be used out of the link, say what that was, and offer the default scenario.

    Before the controls are drawn: Streamlit itself fails on some values. Where a user goes back to
    such a link, the controls keep what they show.
    """
    parameters = {key: st.query_params.get_all(key) for key in st.query_params}
    remember_columns(st.query_params.get("workload"), st.query_params.get("columns"))
    found = problems(parameters, workload_names(uploads()))
    is_new_session = _PROBLEMS not in st.session_state
    st.session_state.setdefault(_PROBLEMS, [])
    faulty = {key: parameters[key] for key in found}
    before = st.session_state.get(_FAULTY)
    st.session_state[_FAULTY] = faulty
    if found and before != faulty:
        st.session_state[_PROBLEMS] = list(found.values())
        if is_new_session:
            for key in found:
                del st.query_params[key]
        st.rerun()
    for key in found.keys() & CONTROLS.keys():
        st.session_state[key] = st.session_state.get(key, as_controls(ScenarioFile())[key])
    if found_before := st.session_state[_PROBLEMS]:
        listed = "\n".join(f"- {problem}" for problem in found_before)
        st.warning(f"**Part of this link cannot be used.** The default stands there.\n\n{listed}")
        with st.container(horizontal=True):
            st.button("Use the default scenario", on_click=_use_default)
            st.button("Keep the rest", on_click=_forget)


def problems(parameters: Mapping[str, Sequence[str]], workloads: Sequence[str]) -> dict[str, str]:
    """Return what is wrong with each parameter of a link that no control can take, by its key."""
    found: dict[str, str] = {}
    for key, values in parameters.items():
        control = CONTROLS.get(key) or PAGE_CONTROLS.get(key)
        if control is None:
            hint = did_you_mean(key, [*CONTROLS, *PAGE_CONTROLS], "it is left out")
            found[key] = f"`{plain(key)}`: no such setting; {hint}"
        elif key == "workload" and values[-1] not in workloads:
            found[key] = f"`workload`: the trace '{plain(values[-1])}' is not here; upload it again"
        elif problem := _problem(control, values):
            found[key] = f"`{key}`: {problem}"
    good = {key: values for key, values in parameters.items() if key not in found}
    return {**found, **_problems_of_texts(good)}


def query_of(scenario: ScenarioFile, **page: str) -> str:
    """Return the part of a link behind ``?`` that restores a scenario, and controls of a ``page``.

    Raises ``PolicyError`` where a control cannot show it.
    """
    defaults = as_controls(ScenarioFile())
    shown = as_controls(scenario).items()
    different = {key: _texts(value) for key, value in shown if value != defaults[key]}
    return urlencode({**different, **page}, doseq=True)


def _problem(control: Control, values: Sequence[str]) -> str | None:
    longest = max(map(len, values), default=0)
    if longest > _MOST_CHARACTERS:
        return f"{longest:,} characters; at most {_MOST_CHARACTERS:,}"
    if len(values) > 1 and not control.many:
        return f"'{plain(', '.join(values))}': given {len(values)} times; once is right"
    if any(values):
        said = control.problem(list(values) if control.many else values[-1])
        if said:
            return f"'{plain(', '.join(values))}': {said}"
    return None


def _problems_of_texts(parameters: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return what is wrong with each text that sets several things at a time."""
    texts = {key: values for key, values in parameters.items() if key in _TEXTS and any(values)}
    if not texts:
        return {}
    chosen = {
        key: CONTROLS[key].parsed(values[-1])
        for key, values in parameters.items()
        if key in CONTROLS and key not in _TEXTS and any(values)
    }
    base = {**as_controls(ScenarioFile()), **chosen}
    if _scenario_problem(base):  # the page says so itself
        base = as_controls(ScenarioFile())
    found = {}
    for key, values in texts.items():
        text = list(values) if CONTROLS[key].many else values[-1]
        over = {} if key == "set" else {"server": DATA_SHEET}
        if said := _scenario_problem({**base, **over, key: text}):
            found[key] = f"`{key}`: '{plain(', '.join(values))}': {escaped(said)}"
    return found


def _scenario_problem(controls: Mapping[str, Any]) -> str | None:
    try:
        from_controls(controls).settled()
    except ServetwinError as error:
        return str(error)
    return None


def _texts(value: Any) -> list[str]:
    values = value if isinstance(value, list) else ["" if value is None else value]
    return [str(one).lower() if isinstance(one, bool) else str(one) for one in values]


def _use_default() -> None:
    _forget()
    show_scenario(ScenarioFile())


def _forget() -> None:
    st.session_state[_PROBLEMS] = []
