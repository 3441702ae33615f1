"""A link holds what differs from the default scenario; a broken one says what is wrong with it.

Streamlit drops what its widgets cannot take, so the link is read before they are drawn.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import streamlit as st

from servetwin.app.dashboard.formatting import plain
from servetwin.app.dashboard.scenario import controls
from servetwin.app.dashboard.scenario.sidebar import show_scenario
from servetwin.app.dashboard.scenario.uploads import remember_columns, workload_names
from servetwin.app.scenario.files.scenario_file import ScenarioFile
from servetwin.workloads.errors import did_you_mean

_PROBLEMS, _FAULTY = "link_problems", "link_faulty"
# Of one value of a link.
_MOST_CHARACTERS = 2_000


def complain_of_link() -> None:
    """Take what cannot be used out of the link, say what that was, and offer the default scenario.

    Before the controls are drawn: Streamlit itself fails on some values. Where a user goes back to
    such a link, the controls keep what they show.
    """
    parameters = {key: st.query_params.get_all(key) for key in st.query_params}
    remember_columns(st.query_params.get("workload"), st.query_params.get("columns"))
    wrong = problems(parameters, workload_names())
    is_new_session = _PROBLEMS not in st.session_state
    st.session_state.setdefault(_PROBLEMS, [])
    faulty = {key: parameters[key] for key in wrong}
    before = st.session_state.get(_FAULTY)
    st.session_state[_FAULTY] = faulty
    if wrong and before != faulty:
        st.session_state[_PROBLEMS] = list(wrong.values())
        if is_new_session:
            for key in wrong:
                del st.query_params[key]
        st.rerun()
    for key in wrong.keys() & controls.CONTROLS.keys():
        st.session_state[key] = st.session_state.get(key, controls.default_controls()[key])
    if found_before := st.session_state[_PROBLEMS]:
        listed = "\n".join(f"- {problem}" for problem in found_before)
        st.warning(f"**Part of this link cannot be used.** The default stands there.\n\n{listed}")
        with st.container(horizontal=True):
            st.button("Use the default scenario", on_click=_use_default)
            st.button("Keep the rest", on_click=_forget)


def problems(parameters: Mapping[str, Sequence[str]], workloads: Sequence[str]) -> dict[str, str]:
    """Return what is wrong with each parameter of a link that no control can take, by its key."""
    wrong: dict[str, str] = {}
    for key, values in parameters.items():
        control = controls.CONTROLS.get(key) or controls.PAGE_CONTROLS.get(key)
        if control is None:
            hint = did_you_mean(
                key, [*controls.CONTROLS, *controls.PAGE_CONTROLS], "it is left out"
            )
            wrong[key] = f"`{plain(key)}`: no such setting; {hint}"
        elif key == "workload" and values[-1] not in workloads:
            wrong[key] = f"`workload`: the trace '{plain(values[-1])}' is not here; upload it again"
        elif problem := _problem(control, values):
            wrong[key] = f"`{key}`: {problem}"
    return wrong


def query_of(scenario: ScenarioFile, **page: str) -> str:
    """Return the part of a link behind ``?`` that restores a scenario, and controls of a ``page``.

    Raises ``PolicyError`` where a control cannot show it.
    """
    defaults = controls.default_controls()
    shown = controls.as_controls(scenario).items()
    different = {key: _texts(value) for key, value in shown if value != defaults[key]}
    return urlencode({**different, **page}, doseq=True)


def _problem(control: controls.Control, values: Sequence[str]) -> str | None:
    longest = max(map(len, values), default=0)
    if longest > _MOST_CHARACTERS:
        return f"{longest:,} characters; at most {_MOST_CHARACTERS:,}"
    if len(values) > 1 and not control.many:
        return f"'{plain(', '.join(values))}': given {len(values)} times; once is right"
    if any(values):
        problem = control.problem(list(values) if control.many else values[-1])
        if problem:
            return f"'{plain(', '.join(values))}': {problem}"
    return None


def _texts(value: Any) -> list[str]:
    values = value if isinstance(value, list) else ["" if value is None else value]
    return [str(one).lower() if isinstance(one, bool) else str(one) for one in values]


def _use_default() -> None:
    _forget()
    show_scenario(ScenarioFile())


def _forget() -> None:
    st.session_state[_PROBLEMS] = []
