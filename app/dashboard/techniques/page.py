"""Techniques: what each does to a server, where its operators are on the roofline, its memory."""

import streamlit as st

from app.dashboard.scenario.allowed_choices import offered
from app.dashboard.scenario.sidebar import current_scenario
from app.dashboard.techniques.effects_panel import effects_panel
from app.dashboard.techniques.server_panels import memory_panel, roofline_panel, tables_panel
from app.dashboard.techniques.subject import HARDWARE, MODEL, Subject
from app.scenario.scenario_file import ScenarioFile
from sim.techniques.setup import Setup
from workloads.errors import ServetwinError

_PANELS = {
    "Effects": effects_panel,
    "Roofline": roofline_panel,
    "Memory": memory_panel,
    "Tables": tables_panel,
}


def page() -> None:
    """Draw the page."""
    st.title("Techniques")
    subject = _subject(current_scenario())
    setup = _built(subject)
    st.caption(f"{setup.deployment.name}. {_techniques_on(subject)}")
    shown = st.segmented_control(
        "Show", list(_PANELS), default="Effects", required=True, key="techniques_show",
        bind="query-params",
    )  # fmt: skip
    _PANELS[shown](subject, setup)


def _subject(file: ScenarioFile) -> Subject:
    """The scenario's own; where it rests on a calibrated profile, what is chosen here."""
    subject = Subject.of(file)
    if subject:
        return subject
    st.info(
        "The scenario's step times are calibrated: a measured server cannot be taken apart. "
        "Choose a model and a device by their data sheets."
    )
    choices = offered()
    left, right = st.columns(2)
    model = left.selectbox(
        "Model", choices["model"], choices["model"].index(MODEL), key="techniques_model",
        bind="query-params",
    )  # fmt: skip
    hardware = right.selectbox(
        "Device", choices["hardware"], choices["hardware"].index(HARDWARE),
        key="techniques_hardware", bind="query-params",
    )  # fmt: skip
    return Subject(model, hardware)


def _built(subject: Subject) -> Setup:
    try:
        return subject.setup()
    except ServetwinError as error:
        st.error(str(error))
        st.stop()


def _techniques_on(subject: Subject) -> str:
    on = ", ".join(f"`{text}`" for text in subject.techniques)
    return f"On: {on}." if on else "No technique is on."
