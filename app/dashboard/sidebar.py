"""The scenario at the side of every page: controls bound to the link, YAML up and down."""

from typing import Any

import streamlit as st

from app.dashboard.controls import (
    CALIBRATED,
    DATA_SHEET,
    OWN,
    as_controls,
    from_controls,
    is_generated,
    technique_names,
    workload_names,
)
from app.dashboard.offers import offered
from app.dashboard.uploads import trace_uploader, uploads
from app.scenario_file import GENERATED, SAMPLE, ScenarioFile, parse_scenario
from policies.presets import PRESETS
from workloads.errors import ServetwinError

_SCENARIO = "scenario"
_YAML_PROBLEM = "yaml_problem"
_MOST_YAML_BYTES = 100_000


def scenario_at_the_side() -> None:
    """Draw the controls; the scenario is then ``current_scenario``."""
    defaults = as_controls(ScenarioFile())
    with st.sidebar:
        st.header("Scenario")
        _workload(defaults)
        _server(defaults)
        _policies(defaults)
        _slo(defaults)
        _file()


def current_scenario() -> ScenarioFile:
    """What the controls show; stops the page with the reason where that cannot be."""
    try:
        return from_controls(_shown())
    except ServetwinError as error:
        st.error(str(error))
        st.stop()


def _shown() -> dict[str, Any]:
    """Every control; one that is not drawn stands at its default."""
    defaults = as_controls(ScenarioFile())
    return {name: st.session_state.get(name, value) for name, value in defaults.items()}


def show_scenario(scenario: ScenarioFile) -> None:
    """Set every control; to be called before they are drawn (from a callback)."""
    st.session_state.update(as_controls(scenario))


def _workload(defaults: dict[str, Any]) -> None:
    with st.expander("Workload", expanded=True):
        names = workload_names(uploads())
        words = {GENERATED: "generated", SAMPLE: "bundled sample trace"}
        source = st.selectbox(
            "Requests from", names, format_func=lambda name: words.get(name, name),
            **_bound("workload"),
        )  # fmt: skip
        generated = is_generated(source)
        own_rate = not generated and st.toggle(
            "At the trace's own rate", defaults["own_rate"], **_bound("own_rate")
        )
        st.slider(
            "Requests per second", 0.5, 200.0, defaults["rate"], 0.5, disabled=own_rate,
            help="Mean arrivals per second, of all replicas together.", **_bound("rate"),
        )  # fmt: skip
        _count("Requests", "requests", defaults, 10, 100_000, "The first ones of a trace.")
        if generated:
            _laws(defaults)
        trace_uploader()


def _laws(defaults: dict[str, Any]) -> None:
    laws = ["constant", "poisson", "gamma", "weibull", "mmpp2"]
    law = st.selectbox(
        "Arrivals", laws, laws.index(defaults["arrivals"]),
        help="gamma and weibull have a CV of gaps; mmpp2 is on and off in turn.",
        **_bound("arrivals"),
    )  # fmt: skip
    if law in ("gamma", "weibull"):
        _real("CV of gaps", "cv", defaults, 0.1, 10.0, "Above 1 is bursty.")
    for part in ("prompt", "output"):
        label = part.capitalize()
        _count(f"{label} tokens, mean", f"{part}_tokens", defaults, 1, 131_072, "Log-normal.")
        _real(f"{label} tokens, CV", f"{part}_cv", defaults, 0.05, 5.0, "0.05: nearly fixed.")
    _count(
        "Shared prefix, tokens", "shared_prefix_tokens", defaults, 0, 131_072,
        "Of each prompt, in common with others of its group (16 groups, Zipf 1).",
    )  # fmt: skip


def _server(defaults: dict[str, Any]) -> None:
    choices = offered()
    with st.expander("Server"):
        kind = st.segmented_control(
            "Step times", [CALIBRATED, DATA_SHEET], default=CALIBRATED, required=True,
            help="Measured on a real engine, or a roofline by the data sheet.", **_bound("server"),
        )  # fmt: skip
        if kind == DATA_SHEET:
            for name, label in (("model", "Model"), ("hardware", "Device")):
                _select(label, name, choices[name], defaults)
            st.multiselect(
                "Techniques", technique_names(), accept_new_options=True,
                help="With parameters: tensor-parallel:ways=2", **_bound("techniques"),
            )  # fmt: skip
            st.text_input("Efficiency", help="compute=0.7,memory=0.85", **_bound("efficiency"))
        else:
            _select("Profile", "profile", choices["profile"], defaults)
        _count("Replicas", "replicas", defaults, 1, 64, "Servers behind a router.")
        _select("Router", "router", [OWN, *choices["router"]], defaults)


def _policies(defaults: dict[str, Any]) -> None:
    choices = offered()
    with st.expander("Policies"):
        _select("Preset", "preset", [OWN, *PRESETS], defaults)
        _select("Batching", "batching", [OWN, *choices["batching"]], defaults)
        _select("KV memory", "kv", [OWN, *choices["kv"]], defaults)
        _select("Prefix cache", "prefix_cache", [OWN, "on", "off"], defaults)
        _optional("Sequences in a batch", "max_seqs", 65_536)
        _optional("Token budget of a step", "token_budget", 1 << 24)
        _optional("KV memory, tokens", "kv_tokens", 1 << 40)
        st.text_input(
            "More settings", help="KEY=VALUE, separated by spaces: queue_order=sjf watermark=0.01",
            **_bound("set"),
        )  # fmt: skip


def _slo(defaults: dict[str, Any]) -> None:
    with st.expander("SLO", expanded=True):
        for name, label in (("ttft_ms", "TTFT"), ("tpot_ms", "TPOT"), ("e2e_ms", "E2E latency")):
            st.number_input(
                f"{label} at most, ms", 0.1, 3_600_000.0, defaults[name], 10.0,
                placeholder="no limit", **_bound(name),
            )  # fmt: skip
        _count("Seed", "seed", defaults, 0, 2**32 - 1, "Of every random stream.")


def _file() -> None:
    with st.expander("Scenario file"):
        st.caption("The address of this page holds the scenario; so does a file.")
        st.download_button(
            "Download YAML", _yaml, "scenario.yaml", "application/yaml", on_click="ignore"
        )
        st.file_uploader(
            "Upload YAML", ["yaml", "yml"], key="yaml", on_change=_take_yaml, max_upload_size=1
        )
        if problem := st.session_state.get(_YAML_PROBLEM):
            st.error(problem)


def _yaml() -> str:
    try:
        return from_controls(_shown()).as_yaml()
    except ServetwinError as error:
        return f"# {error}\n"


def _take_yaml() -> None:
    file = st.session_state["yaml"]
    st.session_state[_YAML_PROBLEM] = None
    if file is None:
        return
    try:
        text = file.getvalue()[:_MOST_YAML_BYTES].decode()
        show_scenario(parse_scenario(text, file.name))
    except UnicodeDecodeError:
        st.session_state[_YAML_PROBLEM] = f"{file.name}: not a text file"
    except ServetwinError as error:
        st.session_state[_YAML_PROBLEM] = str(error)


def _bound(name: str) -> dict[str, Any]:
    """A control's key, which is also its name in the link."""
    return {"key": name, "bind": "query-params"}


def _count(label: str, name: str, defaults: dict[str, Any], low: int, high: int, help: str) -> None:
    st.number_input(label, low, high, defaults[name], help=help, **_bound(name))


def _real(
    label: str, name: str, defaults: dict[str, Any], low: float, high: float, help: str
) -> None:
    st.number_input(label, low, high, float(defaults[name]), 0.1, help=help, **_bound(name))


def _optional(label: str, name: str, high: int) -> None:
    st.number_input(label, 1, high, None, placeholder=OWN, **_bound(name))


def _select(label: str, name: str, names: list[str], defaults: dict[str, Any]) -> None:
    st.selectbox(label, names, names.index(defaults[name]), **_bound(name))
