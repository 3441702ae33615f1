"""The card of the deployment: what its evidence offers, and what is wrong beside the widget."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any

import streamlit as st

from servetwin.app.dashboard.charts import origin_line
from servetwin.app.dashboard.formatting import escaped
from servetwin.app.dashboard.scenario.allowed_choices import evidence_of, offered
from servetwin.app.dashboard.scenario.controls import (
    OWN,
    default_controls,
    from_controls,
    given_settings,
)
from servetwin.app.dashboard.widgets import control, is_changed
from servetwin.app.scenario.files.scenario_file import ScenarioFile, as_keys
from servetwin.app.scenario.options.deployment import Deployment
from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.catalogue.layout import Layout
from servetwin.sim.experiments.scenario import Scenario
from servetwin.workloads.errors import ServetwinError

_WIDTHS = (1, 2, 4, 8, 16)
_WORDS = {OWN: "the best there is", "kernels": "kernel tables", "sheet": "data sheet"}
_OF = ("model", "gpu", "layout", "server", "times", "link", "techniques", "without", "efficiency")


def deployment_card() -> None:
    """Draw model and GPU, and below what is wrong with the deployment or what its step times rest
    on."""
    values = _values()
    if is_changed("model") or is_changed("gpu"):
        own = Deployment(model=values["model"], gpu=values["gpu"], layout=values["layout"])
        _keep_to([*([own.layout] if _fits(own) else []), *_layouts()], "layout")
    _draw("model")
    _draw("gpu")
    try:
        shown = shown_scenario()
        origin_line(settled(shown.deployment, shown.preset).origins)
    except ServetwinError as error:
        problem = as_keys(error).removeprefix("the scenario: deployment.")
        st.caption(f":red[{escaped(problem.rpartition('; ')[2])}]")


def deployment_details() -> None:
    """Draw layout, server, link and evidence."""
    for name in ("layout", "server", "link", "times"):
        if name != "link" or _devices(_values()["layout"]) > 1:
            _draw(name)


def _draw(name: str) -> None:
    values, options = _values(), dict[str, Any]()
    if name == "layout":
        options["options"] = _with_shown(_layouts(), values[name])
    elif name in ("model", "server"):
        options["options"] = _with_shown(offered()[name], values[name])
    elif name == "times":
        evidence = [OWN, *evidence_of(given_settings(values))]
        _keep_to(evidence, name)
        words = {one: _WORDS.get(one, f"profile {one}") for one in evidence}
        options = {"options": evidence, "format_func": words.__getitem__}
    elif name == "link":
        options["format_func"] = lambda one: {OWN: "of the GPU"}.get(one, one)
    control(name, **options)


def _values() -> dict[str, Any]:
    """Return what the controls of the deployment show, or will."""
    defaults = default_controls()
    return {name: st.session_state.get(name, defaults[name]) for name in _OF}


def _layouts() -> list[str]:
    values = _values()
    return fitting_layouts(values["model"], values["gpu"])


def _keep_to(options: Sequence[Any], name: str) -> None:
    """Let a control show the first option where it shows none of them."""
    if options and name in st.session_state and st.session_state[name] not in options:
        st.session_state[name] = options[0]


def _with_shown(options: Sequence[str], shown: str) -> list[str]:
    return [*options, *([] if shown in options else [shown])]


def _devices(layout: str) -> int:
    with suppress(ServetwinError):
        return Layout.parse(layout).devices
    return 1


@lru_cache(maxsize=64)
def fitting_layouts(model: str, gpu: str) -> list[str]:
    """Return the layouts on which the weights of a model fit, the fewest devices first."""
    with suppress(ServetwinError):
        widths = ["tp={0}", "tp={0},ep={0}", "dp={0},ep={0}"]
        forms = widths if find_model(model).experts() else widths[:1]
        texts = ["tp=1", *(form.format(n) for n in _WIDTHS[1:] for form in forms)]
        return [text for text in texts if _fits(Deployment(model=model, gpu=gpu, layout=text))]
    return []


def _fits(deployment: Deployment) -> bool:
    with suppress(ServetwinError):  # no table needs to be opened for the size of the weights
        settled(replace(deployment, times="sheet"), None)
        return True
    return False


def shown_scenario() -> ScenarioFile:
    """Return the scenario of the controls; one that is not drawn is at its default.

    Raises ``ServetwinError`` naming what cannot be.
    """
    defaults = default_controls().items()
    return from_controls({name: st.session_state.get(name, value) for name, value in defaults})


def shown_or_none() -> ScenarioFile | None:
    """Return the scenario of the controls, or None where it cannot be."""
    with suppress(ServetwinError):
        return shown_scenario()
    return None


@lru_cache(maxsize=64)
def settled(deployment: Deployment, preset: str | None) -> Scenario:
    """Return the servers of a deployment under a preset; raises as ``ScenarioFile.settled``."""
    return ScenarioFile(deployment=deployment, preset=preset).settled()
