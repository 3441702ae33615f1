"""Parts that pages share: controls bound to the link, uploaders, problems in place of a drawing."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import streamlit as st

from servetwin.app.dashboard.formatting import escaped
from servetwin.app.dashboard.scenario.controls import CONTROLS, PAGE_CONTROLS, default_controls
from servetwin.app.words import asset_table
from servetwin.workloads.errors import ServetwinError

Value = TypeVar("Value")

_REST_S, _LOOK_EVERY_S = 0.2, 0.01
_SET, _DRAWN = "set_controls", "drawn_controls"
_WIDGETS = asset_table("controls.yaml")["widgets"]


def control(name: str, value: Any = None, place: Any = st, **options: Any) -> Any:
    """Draw a control, which is bound to the link, and return its value, at first ``value``.

    ``options`` are Streamlit's, beside or instead of those in ``controls.yaml``.
    """
    spec = CONTROLS.get(name) or PAGE_CONTROLS[name]
    options = {"help": spec.hint, **spec.look, **options, "key": name, "bind": "query-params"}
    widget, label = (options.pop("widget", _WIDGETS[spec.kind]), options.pop("label", spec.label))
    choices = options.setdefault("options", list(spec.choices))
    value = default_controls().get(name) if value is None else value
    if widget == "selectbox":
        options.setdefault("index", choices.index(value) if value in choices else 0)
    elif widget in ("multiselect", "pills", "segmented_control"):
        options["default"] = choices[0] if value is None and options.get("required") else value
    else:
        del options["options"]
        if spec.low is not None:
            options |= {"min_value": spec.low, "max_value": spec.high}
        if value is not None or widget == "number_input":
            options["value"] = value
    shown = getattr(place, widget)(label, **options)
    if name in CONTROLS:
        note_drawn(name, shown)
    return shown


def note_drawn(name: str, value: Any) -> None:
    """Note what a control of the scenario shows."""
    st.session_state.setdefault(_DRAWN, {})[name] = value


def is_changed(name: str) -> bool:
    """Return whether a control that has been drawn before shows something else now."""
    drawn = st.session_state.get(_DRAWN, {})
    return name in drawn and st.session_state.get(name, drawn[name]) != drawn[name]


def set_controls(values: Mapping[str, Any]) -> None:
    """Let controls of the scenario show other values from the next run of the whole script on.

    Set at once, they would be lost where a message that the browser had sent before (while a job
    runs, it sends one twice a second) begins that run: it has the old values.
    """
    st.session_state.setdefault(_SET, {}).update(values)


def show_set_controls() -> None:
    """Show what was set; to be called before the controls are drawn."""
    st.session_state.update(st.session_state.pop(_SET, {}))


def draw_every(seconds: float, draw: Callable[[], None]) -> None:
    """Draw a part of the page again and again, without the rest.

    The browser may ask for it before it has seen that controls were set elsewhere: these keep what
    the whole script has drawn last.
    """

    @st.fragment(run_every=seconds)
    def again() -> None:
        drawn = st.session_state[_DRAWN]
        st.session_state.update({name: drawn[name] for name in filter(is_changed, drawn)})
        draw()

    again()


@contextmanager
def problems_shown() -> Iterator[None]:
    """Show a ``ServetwinError`` in place of what could not be drawn."""
    try:
        yield
    except ServetwinError as error:
        st.error(escaped(error))


def or_stop(make: Callable[[], Value]) -> Value:
    """Return what ``make`` returns; where it cannot, show why and end the page."""
    with problems_shown():
        return make()
    st.stop()


def end_if_stale() -> None:
    """End this run of the script where its session has moved on, was closed or was reloaded.

    Streamlit ends a script only where it calls Streamlit; reading the session's state is the least.
    """
    _ = "workload" in st.session_state


def await_rest() -> None:
    """Wait until no control has been moved for a moment; end this run of the script where one is.

    Meanwhile the server sends, and the browser shows, what has been drawn so far.
    """
    rested_s = time.monotonic() + _REST_S
    while time.monotonic() < rested_s:
        time.sleep(_LOOK_EVERY_S)
        end_if_stale()


def uploader(label: str, name: str, take: Callable[[str, bytes], None], **options: Any) -> None:
    """Draw an uploader that is empty again after each file; what is wrong stands below.

    ``take`` gets the name and the content of a file.
    """
    taken = st.session_state.setdefault(f"{name}_taken", 0)
    st.file_uploader(
        label, key=f"{name}_{taken}", on_change=_take_upload, args=(name, take), **options
    )
    if problem := st.session_state.get(f"{name}_problem"):
        st.error(escaped(problem))


def _take_upload(name: str, take: Callable[[str, bytes], None]) -> None:
    file = st.session_state[f"{name}_{st.session_state[f'{name}_taken']}"]
    if file is None:
        return
    st.session_state[f"{name}_taken"] += 1  # an empty uploader: the same file can be taken again
    st.session_state[f"{name}_problem"] = None
    try:
        take(file.name, file.getvalue())
    except ServetwinError as error:
        st.session_state[f"{name}_problem"] = str(error)
