"""The share within the SLO on pages of grids and searches: the SLO's own, or another one."""

from typing import Any

from servetwin.app.scenario.files.scenario_file import ScenarioFile
from tests.support.dashboard_app import page_test

_SCRIPT = """
import streamlit as st
from servetwin.app.dashboard.widgets import share_input
from servetwin.app.scenario.files.scenario_file import Limits, ScenarioFile

base = ScenarioFile(slo=Limits(percentile=st.session_state.get("percentile", 99.0)))
st.caption(repr(share_input("policies_share", base, "What it is.")))
"""


def shares(**chosen: Any) -> tuple[float, str]:
    """The share that the input returns, and its placeholder."""
    from streamlit.testing.v1 import AppTest

    at = AppTest.from_string(_SCRIPT)
    for name, value in chosen.items():
        at.session_state[name] = value
    at.run()
    assert not at.exception
    return float(at.caption[0].value), at.number_input[0].placeholder


def test_empty_is_the_percentile_of_the_slo() -> None:
    assert shares() == (ScenarioFile().slo.attainment, "99 (SLO)")
    assert shares(percentile=99.9) == (0.999, "99.9 (SLO)")
    assert shares(percentile=95.0, policies_share=50.0) == (0.5, "95 (SLO)")


def test_the_page_of_policies_follows_the_scenario() -> None:
    at = page_test("policies")
    at.session_state["requests"], at.session_state["percentile"] = 30, 80.0
    at.run()
    assert not at.exception
    (share,) = (w for w in at.number_input if w.key == "policies_share")
    assert (share.value, share.placeholder) == (None, "80 (SLO)")
