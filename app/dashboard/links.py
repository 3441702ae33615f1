"""A link holds what differs from the default scenario; a broken one says what is wrong with it.

Streamlit drops what its widgets cannot take, so the link is read before they are drawn.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import streamlit as st
from pydantic import TypeAdapter, ValidationError

from app.dashboard.controls import CONTROLS, Control
from workloads.errors import did_you_mean

_PROBLEMS = "link_problems"

PAGE_CONTROLS: dict[str, Control] = {}
"""Controls of single pages that a link may hold beside those of the scenario."""


def complain_of_link() -> None:
    """Say what of the link cannot be used, once per session, and offer the default scenario."""
    if _PROBLEMS not in st.session_state:
        given = {key: st.query_params.get_all(key) for key in st.query_params}
        st.session_state[_PROBLEMS] = list(problems(given))
    found: list[str] = st.session_state[_PROBLEMS]
    if found:
        listed = "\n".join(f"- {problem}" for problem in found)
        st.warning(f"**Part of this link cannot be used.** The default stands there.\n\n{listed}")
        st.button("Use the default scenario", on_click=_reset)


def problems(given: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """What is wrong with each parameter of a link that no control can take."""
    for key, values in given.items():
        control = CONTROLS.get(key) or PAGE_CONTROLS.get(key)
        if control is None:
            hint = did_you_mean(key, CONTROLS, "it is left out")
            yield f"`{_plain(key)}`: no such setting; {hint}"
        elif problem := _problem(control, values):
            yield f"`{key}`: {problem}"


def _problem(control: Control, values: Sequence[str]) -> str | None:
    value: Any = list(values) if control.many else values[0]
    try:
        TypeAdapter(control.kind).validate_python(value)
    except ValidationError as error:
        said = error.errors()[0]["msg"].lower()
        return f"'{_plain(', '.join(values))}': {said}"
    return None


def _plain(text: str) -> str:
    """No markup of Markdown."""
    return "".join(c if c.isalnum() or c in " .,:=+-_" else "?" for c in text[:80])


def _reset() -> None:
    from app.dashboard.sidebar import show_scenario
    from app.scenario_file import ScenarioFile

    st.session_state[_PROBLEMS] = []
    show_scenario(ScenarioFile())
