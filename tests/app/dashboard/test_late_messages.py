"""Controls that were set while the browser's message with their old values was on its way."""

from typing import Any

import pytest

testing = pytest.importorskip("streamlit.testing.v1")


def script() -> None:
    import streamlit as st

    from servetwin.app.dashboard.widgets import control, draw_every, set_controls, show_set_controls

    if st.session_state.get("alone"):  # as when only the fragment of a job is drawn
        draw_every(1.0, lambda: None)
        return
    if st.session_state.pop("set_first", None):
        set_controls({"rate": 40.0})
    show_set_controls()
    control("rate")


def drawn(**state: Any) -> Any:
    at = testing.AppTest.from_function(script).run()
    assert at.session_state["rate"] == 10.0
    at.slider[0].set_value(7.0)
    for name, value in state.items():
        at.session_state[name] = value
    at.run()
    assert not at.exception
    return at


def test_what_is_set_wins_over_a_message_that_begins_the_same_run() -> None:
    at = drawn(set_first=True)
    assert at.session_state["rate"] == 40.0
    assert at.run().slider[0].value == 40.0


def test_a_part_that_is_drawn_alone_leaves_controls_as_they_were_drawn() -> None:
    assert drawn(alone=True).session_state["rate"] == 10.0
    assert drawn().session_state["rate"] == 7.0
