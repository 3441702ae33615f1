"""Techniques: their effects and quality, the server's operators on the roofline, its memory."""

import streamlit as st

from servetwin.app.dashboard.charts import origin_line
from servetwin.app.dashboard.scenario.sidebar import current_scenario
from servetwin.app.dashboard.techniques.data_sheet_server import DataSheetServer
from servetwin.app.dashboard.techniques.effects_panel import begin_with_the_dozen, effects_panel
from servetwin.app.dashboard.techniques.quality_panel import quality_panel
from servetwin.app.dashboard.techniques.server_panels import memory_panel, roofline_panel
from servetwin.app.dashboard.widgets import control, or_stop
from servetwin.sim.step_times.roofline.server import RooflineServer

_PANELS = {
    "Effects": effects_panel,
    "Quality": quality_panel,
    "Roofline": roofline_panel,
    "Memory": memory_panel,
}


def page() -> None:
    """Draw the page."""
    st.title("Techniques")
    server = DataSheetServer.of(current_scenario())
    setup = or_stop(server.setup)
    st.caption(f"{setup.deployment.name}. {_techniques_on(server)}")
    origin_line([RooflineServer(setup.deployment).origin])
    shown = control("techniques_show")
    begin_with_the_dozen(server)
    _PANELS[shown](server, setup)


def _techniques_on(server: DataSheetServer) -> str:
    """Name the techniques that were turned on and off, beside what the server has by itself."""
    on = ", ".join(f"`{text}`" for text in server.techniques)
    off = ", ".join(f"`{text}`" for text in server.without)
    text = f"On: {on}." if on else "No technique is on beside those of the server itself."
    return f"{text} Off: {off}." if off else text
