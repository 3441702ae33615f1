"""The scenario at the side of every page: controls bound to the link, YAML up and down."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import streamlit as st

from servetwin.app.dashboard.formatting import page_text
from servetwin.app.dashboard.scenario import uploads
from servetwin.app.dashboard.scenario.column_dialog import ask_for_columns
from servetwin.app.dashboard.scenario.controls import CONTROLS, OWN, as_controls
from servetwin.app.dashboard.scenario.deployment_card import (
    deployment_card,
    deployment_details,
    settled,
    shown_or_none,
    shown_scenario,
)
from servetwin.app.dashboard.scenario.fitted_server import offer_fit
from servetwin.app.dashboard.widgets import control, or_stop, set_controls, uploader
from servetwin.app.scenario.files.scenario_file import (
    GENERATED,
    GENERATED_REQUESTS,
    ScenarioError,
    ScenarioFile,
    parse_scenario,
)
from servetwin.sim.techniques.registry import TECHNIQUES
from servetwin.workloads.errors import ServetwinError

_MOST_YAML_BYTES = 100_000


def scenario_at_the_side() -> None:
    """Draw the controls; the scenario is then ``current_scenario``."""
    with st.sidebar:
        with st.container(border=True):
            deployment_card()
        with st.container(border=True):
            _workload()
        with st.container(border=True):
            for name, place in zip(("ttft_ms", "tpot_ms"), st.columns(2), strict=True):
                control(name, place=place)
            with st.expander("Percentile, more limits"):
                control("percentile")
                control("e2e_ms")
        with st.expander("Layout, replicas, techniques"):
            deployment_details()
            _more_of_the_servers()
        with st.expander("Policies"):
            _policies()
        with st.expander("Scenario file"):
            _file()
        st.button(
            "Reset to the default", on_click=show_scenario, args=(ScenarioFile(),), width="stretch"
        )
    ask_for_columns()


def current_scenario() -> ScenarioFile:
    """Return what the controls show; stop the page with the reason where that cannot be."""
    return or_stop(shown_scenario)


def show_scenario(scenario: ScenarioFile) -> None:
    """Set every control."""
    uploads.remember_columns(scenario.workload.source, scenario.workload.columns)
    set_controls(as_controls(scenario))


def _workload() -> None:
    source = control("workload", options=uploads.workload_names())
    uploads.trace_uploader()
    generated = source == GENERATED
    own_rate = not generated and control("own_rate")
    control("rate", disabled=own_rate)
    if not generated:
        uploads.columns_of_table(source)
    with st.expander("Lengths and arrivals" if generated else "Part of the trace"):
        if generated:
            control("requests", placeholder=f"{GENERATED_REQUESTS:,}")
            _distributions()
        else:
            _part_of_trace(source)
    offer_fit(source, shown_or_none())


def _part_of_trace(source: str) -> None:
    trace = uploads.whole_trace(source)
    control("requests", placeholder=f"all {len(trace):,}" if trace else None)
    if trace and not trace.has_prefix_ids:
        if any(request.session_id for request in trace):
            control("conversations")
        control("prefix_share")


def _distributions() -> None:
    process = control("arrivals")
    if process in ("gamma", "weibull"):
        control("cv")
    for part in ("prompt", "output"):
        mean, spread = st.columns([5, 4], vertical_alignment="bottom")
        control(f"{part}_tokens", place=mean)
        control(f"{part}_cv", place=spread)
    st.caption("Lengths are log-normal with that mean and CV; a CV of 0.05 is nearly fixed.")
    control("shared_prefix_tokens")


def _more_of_the_servers() -> None:
    for name in ("techniques", "without"):
        control(name, options=list(TECHNIQUES))
    control("efficiency")
    defaults = own_settings()
    _optional("replicas", defaults)
    _optional("router", defaults)


def _policies() -> None:
    control("preset")
    defaults = own_settings()
    cache = {True: "on", False: "off"}.get(defaults.get("prefix_cache", ""))
    for name in ("batching", "kv", "prefix_cache", "max_seqs", "token_budget", "kv_tokens"):
        _optional(name, {**defaults, "prefix_cache": cache})
    control("set")
    control("seed")


def _optional(name: str, own: Mapping[str, Any]) -> None:
    """Draw a setting that may be left to the server, and say what the server then has: ``own``."""
    value, help_ = own.get(name), CONTROLS[name].help
    if CONTROLS[name].choices:
        control(name, help=f"{help_} The {OWN}: {value}." if value else help_)
    else:
        control(name, placeholder=OWN if value is None else f"{value:,} ({OWN})")


def own_settings() -> Mapping[str, Any]:
    """Return policies and cluster of the servers under their preset; {} where they cannot be."""
    with suppress(ServetwinError):
        shown = shown_scenario()
        scenario = settled(shown.deployment, shown.preset)
        return {**scenario.policies.as_dict(), **scenario.cluster.as_dict()}
    return {}


def _file() -> None:
    st.caption(page_text("scenario.file"))
    scenario = shown_or_none()
    st.download_button(
        "Download YAML", scenario.as_yaml if scenario else "", "scenario.yaml", "application/yaml",
        on_click="ignore", disabled=scenario is None,
    )  # fmt: skip
    uploader("Upload YAML", "yaml", _take_yaml, type=["yaml", "yml"], max_upload_size=1)


def _take_yaml(name: str, content: bytes) -> None:
    if len(content) > _MOST_YAML_BYTES:
        raise ScenarioError(f"{name}: {len(content)} bytes; at most {_MOST_YAML_BYTES} here")
    show_scenario(parse_scenario(content, name))
