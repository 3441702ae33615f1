"""A link holds what differs from the default scenario; a broken one says what is wrong with it.

Streamlit drops what its widgets cannot take, so the link is read before they are drawn.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import streamlit as st
from pydantic import Field

from app.dashboard.formatting import plain
from app.dashboard.scenario.controls import CONTROLS, Control, as_controls, workload_names
from app.dashboard.scenario.sidebar import show_scenario
from app.dashboard.scenario.uploads import uploads
from app.scenario.scenario_file import ScenarioFile
from workloads.errors import did_you_mean

_PROBLEMS = "link_problems"

PAGE_CONTROLS: dict[str, Control] = {
    "compare_policies": Control(list[str], many=True),
    "frontier_max_seqs": Control(str),
    "frontier_rate": Control(str),
    "frontier_replicas": Control(str),
    "frontier_share": Control(Annotated[float, Field(ge=1, le=100)]),
    "frontier_token_budget": Control(str),
    "frontier_y": Control(Literal["goodput", "output throughput"]),
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
    "techniques_show": Control(Literal["Effects", "Roofline", "Memory", "Tables"]),
}
"""Controls of single pages that a link may hold beside the controls of the scenario."""


def complain_of_link() -> None:
    """Say what of the link cannot be used, once per session, and offer the default scenario."""
    if _PROBLEMS not in st.session_state:
        parameters = {key: st.query_params.get_all(key) for key in st.query_params}
        st.session_state[_PROBLEMS] = list(problems(parameters, workload_names(uploads())))
    found: list[str] = st.session_state[_PROBLEMS]
    if found:
        listed = "\n".join(f"- {problem}" for problem in found)
        st.warning(f"**Part of this link cannot be used.** The default stands there.\n\n{listed}")
        with st.container(horizontal=True):
            st.button("Use the default scenario", on_click=_use_default)
            st.button("Keep the rest", on_click=_forget)


def problems(parameters: Mapping[str, Sequence[str]], workloads: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong with each parameter of a link that no control can take."""
    for key, values in parameters.items():
        control = CONTROLS.get(key) or PAGE_CONTROLS.get(key)
        if control is None:
            hint = did_you_mean(key, [*CONTROLS, *PAGE_CONTROLS], "it is left out")
            yield f"`{plain(key)}`: no such setting; {hint}"
        elif key == "workload" and values[-1] not in workloads:
            yield f"`workload`: the trace '{plain(values[-1])}' is not here; upload it again"
        elif problem := _problem(control, values):
            yield f"`{key}`: {problem}"


def query_of(scenario: ScenarioFile, **page: str) -> str:
    """Return the part of a link behind ``?`` that restores a scenario, and controls of a ``page``.

    Raises ``PolicyError`` where a control cannot show it.
    """
    defaults = as_controls(ScenarioFile())
    shown = as_controls(scenario).items()
    different = {key: _texts(value) for key, value in shown if value != defaults[key]}
    return urlencode({**different, **page}, doseq=True)


def _problem(control: Control, values: Sequence[str]) -> str | None:
    if any(values):
        said = control.problem(list(values) if control.many else values[-1])
        if said:
            return f"'{plain(', '.join(values))}': {said}"
    return None


def _texts(value: Any) -> list[str]:
    values = value if isinstance(value, list) else ["" if value is None else value]
    return [str(one).lower() if isinstance(one, bool) else str(one) for one in values]


def _use_default() -> None:
    _forget()
    show_scenario(ScenarioFile())


def _forget() -> None:
    st.session_state[_PROBLEMS] = []
