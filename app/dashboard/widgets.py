"""Parts that pages share: controls bound to the link, uploaders, problems in place of a drawing."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import streamlit as st

from servetwin.app.dashboard.formatting import escaped
from servetwin.workloads.errors import ServetwinError

Key = TypeVar("Key")
Value = TypeVar("Value")

_REST_S, _LOOK_EVERY_S = 0.2, 0.01


def bound(name: str) -> dict[str, Any]:
    """Return the key of a control, which is also its name in the link."""
    return {"key": name, "bind": "query-params"}


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


def keep_newest(kept: dict[Key, Value], found: dict[Key, Value], most: int) -> None:
    """Add to what is kept, and drop the oldest beyond ``most``."""
    kept.update(found)
    while len(kept) > most:
        kept.pop(next(iter(kept)), None)
