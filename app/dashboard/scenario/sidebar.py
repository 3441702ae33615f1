"""The scenario at the side of every page: controls bound to the link, YAML up and down."""

from collections.abc import Mapping
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any

import streamlit as st

from servetwin.app.dashboard.origin_line import origin_line
from servetwin.app.dashboard.scenario.column_dialog import ask_for_columns
from servetwin.app.dashboard.scenario.controls import (
    ASSUMED_PREFIX,
    CONTROLS,
    CONVERSATIONS,
    DATA_SHEET,
    FROM_PROFILE,
    OWN,
    SHARED_PREFIX,
    as_controls,
    from_controls,
    is_generated,
    workload_names,
)
from servetwin.app.dashboard.scenario.fitted_server import offer_fit
from servetwin.app.dashboard.scenario.uploads import (
    columns_of_table,
    remember_columns,
    trace_uploader,
    uploads,
    whole_trace,
)
from servetwin.app.dashboard.widgets import bound, or_stop, uploader
from servetwin.app.scenario.files.scenario_file import (
    GENERATED_REQUESTS,
    ScenarioError,
    ScenarioFile,
    Server,
    parse_scenario,
)
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.step_times.provenance import Origin
from servetwin.sim.techniques.registry import TECHNIQUES
from servetwin.workloads.errors import ServetwinError

_MOST_YAML_BYTES = 100_000


def scenario_at_the_side() -> None:
    """Draw the controls; the scenario is then ``current_scenario``."""
    defaults = _defaults()
    with st.sidebar:
        st.header("Scenario")
        _workload(defaults)
        _slo(defaults)
        _server(defaults)
        _policies(defaults)
        _file()
        st.button(
            "Reset to the default", on_click=show_scenario, args=(ScenarioFile(),), width="stretch"
        )
    ask_for_columns()


def current_scenario() -> ScenarioFile:
    """Return what the controls show; stop the page with the reason where that cannot be."""
    return or_stop(lambda: from_controls(_shown()))


def show_scenario(scenario: ScenarioFile) -> None:
    """Set every control; to be called before they are drawn (from a callback)."""
    remember_columns(scenario.workload.source, scenario.workload.columns)
    st.session_state.update(as_controls(scenario))


def _shown() -> dict[str, Any]:
    """Return the value of every control; one that is not drawn is at its default."""
    return {name: st.session_state.get(name, value) for name, value in _defaults().items()}


@cache
def _defaults() -> Mapping[str, Any]:
    return as_controls(ScenarioFile())


def _workload(defaults: Mapping[str, Any]) -> None:
    with st.expander("Workload", expanded=True):
        source = st.selectbox(
            "Requests from", workload_names(uploads()), help=CONTROLS["workload"].help,
            **bound("workload"),
        )  # fmt: skip
        generated = is_generated(source)
        own_rate = not generated and st.toggle(
            "At the trace's own rate", defaults["own_rate"], **bound("own_rate")
        )
        rates = CONTROLS["rate"]
        st.slider(
            "Requests per second", rates.low, rates.high, defaults["rate"], 0.5, disabled=own_rate,
            help=rates.help, **bound("rate"),
        )  # fmt: skip
        if generated:
            _number("Requests", "requests", None, placeholder=f"{GENERATED_REQUESTS:,}")
            _distributions(defaults)
        else:
            columns_of_table(source)
            _part_of_trace(source, defaults)
        trace_uploader()
        offer_fit(source, _scenario_or_none())


def _scenario_or_none() -> ScenarioFile | None:
    with suppress(ServetwinError):
        return from_controls(_shown())
    return None


def _part_of_trace(source: str, defaults: Mapping[str, Any]) -> None:
    trace = whole_trace(source)
    whole = f"all {len(trace):,}" if trace else None
    _number("Requests", "requests", None, placeholder=whole)
    if trace and not trace.has_prefix_ids:
        if any(request.session_id for request in trace):
            st.toggle(CONVERSATIONS, help=CONTROLS["conversations"].help, **bound("conversations"))
        _number(ASSUMED_PREFIX, "prefix_share", defaults["prefix_share"], step=0.05)


def _distributions(defaults: Mapping[str, Any]) -> None:
    process = _select("Arrivals", "arrivals", defaults)
    if process in ("gamma", "weibull"):
        _real("CV of gaps", "cv", defaults)
    for part in ("prompt", "output"):
        mean, spread = st.columns([5, 4], vertical_alignment="bottom")
        label = part.capitalize()
        with mean:
            _count(f"{label} tokens", f"{part}_tokens", defaults)
        with spread:
            _real(f"{label} CV", f"{part}_cv", defaults)
    st.caption("Lengths are log-normal with that mean and CV; a CV of 0.05 is nearly fixed.")
    _count(SHARED_PREFIX, "shared_prefix_tokens", defaults)


def _slo(defaults: Mapping[str, Any]) -> None:
    with st.expander("SLO", expanded=True):
        for name, label in (("ttft_ms", "TTFT"), ("tpot_ms", "TPOT"), ("e2e_ms", "E2E latency")):
            help_ = f"{CONTROLS[name].help} Empty: no limit."
            shown = {"step": 10.0, "format": "%g", "placeholder": "no limit", "help": help_}
            _number(f"{label} at most, ms", name, defaults[name], **shown)
        _number("SLO percentile", "percentile", defaults["percentile"], step=1.0, format="%g")


def _server(defaults: Mapping[str, Any]) -> None:
    with st.expander("Server"):
        kind = st.segmented_control(
            "Server from", [FROM_PROFILE, DATA_SHEET], default=FROM_PROFILE, required=True,
            help="A profile, or a model on a device by its data sheet.", **bound("server"),
        )  # fmt: skip
        if kind == DATA_SHEET:
            for name, label in (("model", "Model"), ("hardware", "Device")):
                _select(label, name, defaults)
            for name, label in (("techniques", "Techniques"), ("without", "Without techniques")):
                st.multiselect(
                    label, list(TECHNIQUES), accept_new_options=True,
                    help=CONTROLS[name].help, **bound(name),
                )  # fmt: skip
            st.text_input(
                "Efficiency", placeholder="compute=0.7,memory=0.85",
                help=CONTROLS["efficiency"].help, **bound("efficiency"),
            )  # fmt: skip
        else:
            _select("Profile", "profile", defaults)
        if origins := _origins():
            origin_line(origins)
        own = _own()
        _optional("Replicas", "replicas", own)
        _select("Router", "router", defaults, own)


def _policies(defaults: Mapping[str, Any]) -> None:
    with st.expander("Policies"):
        _select("Preset", "preset", defaults)
        own = _own()
        for label, name in (("Batching", "batching"), ("KV memory", "kv")):
            _select(label, name, defaults, own)
        cache = {True: "on", False: "off"}.get(own.get("prefix_cache", ""))
        _select("Prefix cache", "prefix_cache", defaults, {"prefix_cache": cache})
        _optional("Sequences in a batch", "max_seqs", own)
        _optional("Token budget of a step", "token_budget", own)
        _optional("KV memory, tokens", "kv_tokens", own)
        st.text_input(
            "More settings", placeholder="queue_order=sjf watermark=0.01",
            help="KEY=VALUE, separated by spaces.", **bound("set"),
        )  # fmt: skip
        _count("Seed", "seed", defaults)


def _own() -> Mapping[str, Any]:
    """Return the settings of the server that the controls show."""
    with suppress(ServetwinError):
        scenario = from_controls(_shown())
        return own_settings(scenario.server, scenario.preset)
    return {}


def _origins() -> tuple[Origin, ...]:
    """Return where the step times of the server come from that the controls show."""
    with suppress(ServetwinError):
        scenario = from_controls(_shown())
        return _settled(scenario.server, scenario.preset).origins
    return ()


def own_settings(server: Server, preset: str | None) -> Mapping[str, Any]:
    """Return policies and cluster of ``server`` under ``preset``; empty where it cannot be."""
    with suppress(ServetwinError):
        scenario = _settled(server, preset)
        return {**scenario.policies.as_dict(), **scenario.cluster.as_dict()}
    return {}


@lru_cache(maxsize=64)
def _settled(server: Server, preset: str | None) -> Scenario:
    return ScenarioFile(server=server, preset=preset).settled()


def _file() -> None:
    with st.expander("Scenario file"):
        st.caption(
            "The address of this page holds the scenario; so does a file, also for "
            "`servetwin replay --scenario`."
        )
        st.download_button(
            "Download YAML", _yaml(), "scenario.yaml", "application/yaml", on_click="ignore"
        )
        uploader("Upload YAML", "yaml", _take_yaml, type=["yaml", "yml"], max_upload_size=1)


def _yaml() -> str:
    try:
        return from_controls(_shown()).as_yaml()
    except ServetwinError as error:
        return f"# {error}\n"


def _take_yaml(name: str, content: bytes) -> None:
    if len(content) > _MOST_YAML_BYTES:
        raise ScenarioError(f"{name}: {len(content)} bytes; at most {_MOST_YAML_BYTES} here")
    show_scenario(parse_scenario(content, name))


def _count(label: str, name: str, defaults: Mapping[str, Any]) -> None:
    _number(label, name, defaults[name])


def _real(label: str, name: str, defaults: Mapping[str, Any]) -> None:
    _number(label, name, float(defaults[name]), step=0.1)


def _optional(label: str, name: str, own: Mapping[str, Any]) -> None:
    """Draw a number that may be left to the server, which then has the one of ``own``."""
    _number(label, name, None, placeholder=f"{own[name]:,} ({OWN})" if name in own else OWN)


def _number(label: str, name: str, value: float | None, **options: Any) -> None:
    takes = CONTROLS[name]
    options = {"help": takes.help, **options, **bound(name)}
    st.number_input(label, takes.low, takes.high, value, **options)


def _select(
    label: str, name: str, defaults: Mapping[str, Any], own: Mapping[str, Any] | None = None
) -> str:
    """Draw a choice; its help adds what the server has by itself, from ``own``."""
    takes, by_itself = CONTROLS[name], (own or {}).get(name)
    help_ = f"{takes.help} The {OWN}: {by_itself}." if by_itself else takes.help
    place = takes.choices.index(defaults[name])
    chosen: str = st.selectbox(label, takes.choices, place, help=help_, **bound(name))
    return chosen
