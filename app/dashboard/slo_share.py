"""The share of requests that must be within the SLO, on pages that may ask for another one."""

import streamlit as st

from servetwin.app.dashboard.widgets import bound
from servetwin.app.scenario.files.scenario_file import ScenarioFile, as_share

WITHIN_SLO = "Requests within the SLO, % at least"


def share_input(name: str, label: str, base: ScenarioFile, help_: str, low: float = 1.0) -> float:
    """Draw a percentage that is the SLO's where it is left empty; return the share."""
    percentile = base.slo.percentile
    chosen = st.number_input(
        label, low, 100.0, None, 0.5, format="%g", placeholder=f"{percentile:g} (SLO)",
        help=f"{help_} Empty: the percentile of the SLO at the side.", **bound(name),
    )  # fmt: skip
    return as_share(percentile if chosen is None else chosen)
