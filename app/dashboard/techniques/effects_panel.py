"""The Effects panel of the Techniques page: measure, read, turn on."""

from collections.abc import Sequence
from typing import get_args

import pandas as pd
import streamlit as st

from servetwin.app.dashboard.charts import downloads
from servetwin.app.dashboard.jobs.job import Job, find_job, results_of, start_job, watch_job
from servetwin.app.dashboard.scenario.allowed_choices import offered_technique
from servetwin.app.dashboard.scenario.sidebar import current_scenario, show_scenario
from servetwin.app.dashboard.techniques import effects
from servetwin.app.dashboard.techniques.data_sheet_server import DataSheetServer
from servetwin.app.dashboard.widgets import control
from servetwin.sim.techniques.effects import Effect
from servetwin.sim.techniques.registry import TECHNIQUES
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import Family, Technique
from servetwin.workloads.errors import ServetwinError
from servetwin.workloads.rows import counted

_ALL = "all"
_TINTS = {"better": "#2E8B5755", "worse": "#D55E0055"}
"""Behind the text, which keeps the page's own colour: as text they are 4:1 from a white page."""
_COLUMNS = {
    "technique": st.column_config.TextColumn(pinned=True),
    **{
        head: st.column_config.TextColumn(head, help=meaning, width=134)
        for head, meaning in effects.HEADS.values()
    },
}


def effects_panel(server: DataSheetServer, setup: Setup) -> None:
    """Draw what each shown technique changes on this server, and one technique in full."""
    names = shown_techniques(server)
    job = job_of(server)
    if job is None or not job.is_running:
        _offer(server, names)
    if job is None:
        _table(server, setup, names)
    else:
        watch_job(JOB, lambda _: _table(server, setup, names))
    st.caption(effects.EXPLAINED)
    _one(server)
    if known := measured(server):
        downloads(effects.changes_frame(known.values()), "technique_effects")


def shown_techniques(server: DataSheetServer) -> list[str]:
    """Draw the filter, and return the chosen dozen, or the techniques of the chosen families."""
    families = st.pills(
        "More techniques", [_ALL, *get_args(Family)], selection_mode="multi",
        key="techniques_families", help="Where none is chosen, a dozen that servers often have.",
    )  # fmt: skip
    everything = effects.texts(server)
    if not families:
        names = effects.dozen(server)
    else:
        names = everything if _ALL in families else effects.texts(server, families)
    st.caption(f"{len(names)} of {len(everything)} techniques are shown.")
    return names


def _offer(server: DataSheetServer, names: Sequence[str]) -> None:
    missing = [text for text in names if text not in measured(server)]
    if missing:
        st.button(
            f"Measure {counted(len(missing), 'technique')}", type="primary", on_click=begin,
            args=(server, missing), help="About a quarter of a second each.",
        )  # fmt: skip


def _table(server: DataSheetServer, setup: Setup, names: Sequence[str]) -> None:
    known = measured(server)
    frame = effects.effects_table(names, known, setup.deployment.model)
    st.dataframe(
        frame.style.map(_tint, subset=[head for head, _ in effects.HEADS.values()]),
        hide_index=True, column_config=_COLUMNS, height=460, key="techniques_table",
        alt="What each technique changes, as a verdict and in per cent.",
    )  # fmt: skip
    refused = [known[name] for name in names if name in known and known[name].refused]
    if refused:
        with st.expander(f"Not applicable: {counted(len(refused), 'technique')}, with the reason"):
            for effect in refused:
                st.text(f"{effect.technique.name}: {effect.refused}")


def _one(server: DataSheetServer) -> None:
    """Draw one technique: its formula, source, changes and switch."""
    st.subheader("One technique")
    name = control("techniques_chosen", options=list(TECHNIQUES))
    technique = TECHNIQUES[name]
    st.markdown(_about(technique))
    text = _with_parameters(server, technique)
    _switch(server, name, text)
    if effect := measured(server).get(text):
        _changes(effect)


def _about(technique: type[Technique]) -> str:
    answers = "the same answers" if technique.lossless else "answers may change"
    return (
        f"**{technique.name}** ({technique.family}, {technique.kind}, {answers})  \n"
        f"Formula: {technique.formula}  \nSource: {technique.source}"
    ).replace("*", "\\*").replace("\\*\\*", "**")  # fmt: skip


def _with_parameters(server: DataSheetServer, technique: type[Technique]) -> str:
    if not technique.model_fields:
        return technique.name
    on = (server.text_of(technique.name) or "").partition(":")[2]
    given = st.text_input(
        "Parameters", on, placeholder=effects.parameters(technique),
        key=f"techniques_parameters_{technique.name}",
        help=f"KEY=VALUE, separated by commas. By default {effects.parameters(technique)}.",
    )  # fmt: skip
    return f"{technique.name}:{given.strip()}" if given.strip() else technique.name


def _switch(server: DataSheetServer, name: str, text: str) -> None:
    """Draw buttons to measure it and turn it on or off, or why it does not apply."""
    try:
        by_itself = server.has_by_itself(name)
        changed = server.with_technique(text)
        changed.setup().scenario()
        off = server.without_technique(text if by_itself else name)
    except ServetwinError as error:
        st.error(str(error))
        return
    if note := offered_technique(text).note(changed.setup()):
        st.caption(f"Note: {note}.")
    chosen = server.text_of(name)
    is_on = chosen is not None or (by_itself and not server.lacks(name))
    if by_itself and chosen is None:
        st.caption(
            "Already enabled on this server."
            if is_on
            else "Turned off; the server enables it by default."
        )
    with st.container(horizontal=True):
        if text not in measured(server):
            st.button("Measure this one", on_click=begin, args=(server, [text]))
        if not is_on:
            on = server.untouched(name) if by_itself and text == name else changed
            _show("Turn on in the scenario", on)
        elif text != (chosen or name):
            _show("Change its parameters in the scenario", changed)
        if is_on:
            _show("Turn off in the scenario", off)


def _show(label: str, server: DataSheetServer) -> None:
    """Draw a button that gives the scenario this server."""
    st.button(
        label, on_click=show_scenario, args=(server.in_scenario(current_scenario()),),
        help="The scenario's server becomes this model and device, by their data sheets.",
    )  # fmt: skip


def _changes(effect: Effect) -> None:
    if effect.refused:
        st.warning(f"Not applicable: {effect.refused}")
        return
    st.table(
        pd.DataFrame(
            {"metric": head, "change": effects.change_text(effect.of(metric)), "meaning": meaning}
            for metric, (head, meaning) in effects.HEADS.items()
        ).set_index("metric")
    )
    st.caption(f"Load: {effect.experiment.describe()}.")


def _tint(cell: object) -> str:
    tint = _TINTS.get(str(cell).partition(" ")[0])
    return f"background-color: {tint}" if tint else ""


JOB = "techniques"


def begin(server: DataSheetServer, texts: Sequence[str]) -> None:
    """Begin to measure the techniques of ``texts`` that are not measured yet."""
    known = measured(server)
    if items := [(server, text) for text in texts if text not in known]:
        start_job(JOB, effects.measure, items, note=server, keys=items)


def begin_with_the_dozen(server: DataSheetServer) -> None:
    """Measure the chosen dozen on a server on which nothing was begun, so that no page is empty."""
    if job_of(server) is None:
        begin(server, effects.dozen(server))


def job_of(server: DataSheetServer) -> "Job[effects.Item, Effect] | None":
    """Return this session's job where it measures ``server``; one of another server is stopped."""
    job = find_job(JOB)
    if job is None or job.note == server:
        return job
    job.stop()
    return None


def measured(server: DataSheetServer) -> dict[str, Effect]:
    """Return the effects on a server that any session has measured, by technique text."""
    return {text: effect for (of, text), effect in results_of(effects.measure) if of == server}
