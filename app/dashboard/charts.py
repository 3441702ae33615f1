"""What pages show of their results: figures, tables, where step times come from; and the menu that
saves them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd
import streamlit as st

from servetwin.app.dashboard.formatting import escaped
from servetwin.app.dashboard.pictures import picture_buttons
from servetwin.app.figures.canvas import Figure
from servetwin.app.reports.run_words import made_by
from servetwin.app.reports.table import Table
from servetwin.app.words import LOOKS
from servetwin.sim.step_times.provenance import MEANINGS, Origin

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

_CONFIG = {
    "displaylogo": False,
    "modeBarButtonsToRemove": ["lasso2d", "select2d", "autoScale2d", "toImage"],
}
_MENU = "save_menu"
# Rows of a table that does not scroll in itself.
_WHOLE_ROWS = 24


@dataclass(frozen=True, slots=True)
class _Menu:
    """What the menu of a page saves: buttons by chart, frames by file; ``place`` is taken once."""

    place: list[Any] = field(default_factory=list)
    charts: dict[str, str] = field(default_factory=dict)
    frames: dict[str, pd.DataFrame] = field(default_factory=dict)


@contextmanager
def titled_page(title: str, question: str) -> Iterator[None]:
    """Draw a title, the menu that saves the page, and the question that the page answers."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.title(title, width="stretch")
        st.session_state[_MENU] = _Menu([st.empty()])
    st.markdown(question)
    yield
    draw_save_menu()


def draw_save_menu() -> None:
    """Draw the menu, unless it is drawn: a page does so before work that takes longer."""
    menu = _menu()
    if not menu.place or not (menu.charts or menu.frames):
        return
    with menu.place.pop().popover("Save as ..."):
        for buttons in menu.charts.values():
            st.html(buttons)
        for name, frame in menu.frames.items():
            _download_buttons(frame, name)


def _menu() -> _Menu:
    menu: _Menu = st.session_state.setdefault(_MENU, _Menu())
    return menu


def chart(figure: Figure, key: str, source: str | None = None, **options: Any) -> Any:
    """Draw ``figure`` in the colours of the page; ``key`` keeps its place between reruns.

    Below stands what it leaves out; a picture of it says by ``source`` what was simulated or
    measured.
    """
    alt = figure.alt
    selection = st.plotly_chart(figure, key=key, config=_CONFIG, alt=alt, **options)
    if note := figure.note:
        st.caption(escaped(note))
    _menu().charts[key] = picture_buttons(figure, key, source or made_by())
    return selection


def reserved(key: str) -> "DeltaGenerator":
    """Return a place for a large chart, as high while it is empty (``dashboard.css``)."""
    return st.container(key=f"reserved_{key}")


def charts_by_two(charts: Mapping[str, Figure], source: str) -> None:
    """Draw charts, by their keys, two in a row, each below its title."""
    for place, (key, figure) in enumerate(charts.items()):
        if place % 2 == 0:
            columns = st.columns(2)
        with columns[place % 2]:
            st.markdown(f"**{figure.title}**")
            chart(figure, key, source)


def table(frame: pd.DataFrame, alt: str, file: str | None = None, **options: Any) -> None:
    """Draw a table without its index, and offer its data as a ``file``; ``alt`` says what it
    holds."""
    options = {"height": "content" if len(frame) <= _WHOLE_ROWS else "auto", **options}
    st.dataframe(frame, hide_index=True, placeholder="-", alt=alt, **options)
    if file:
        downloads(frame, file)


def report_table(made: Table, alt: str, order: Sequence[str]) -> None:
    """Draw columns of a table of a report, with its caption; the first one names the rows."""
    rows = [list(map(str, row)) for row in made.rows]
    frame = pd.DataFrame(rows, columns=list(map(str, made.heads)))
    right = st.column_config.Column(alignment="right")
    table(frame, alt, column_config=dict.fromkeys(order[1:], right), column_order=order)
    st.caption(escaped(made.caption))


def downloads(frame: pd.DataFrame, name: str) -> None:
    """Offer ``frame`` in the menu of the page, as CSV and as Parquet."""
    _menu().frames[name] = frame


def _download_buttons(frame: pd.DataFrame, name: str) -> None:
    """Draw a button a format; a file is made when it is pressed."""
    with st.container(horizontal=True):
        for kind, (ending, media_type, packed) in _KINDS.items():
            st.download_button(
                f"{name}, {kind}", partial(packed, frame), f"{name}.{ending}", media_type,
                key=f"{name}_{ending}", on_click="ignore",
            )  # fmt: skip


_KINDS = {
    "CSV": ("csv", "text/csv", lambda frame: frame.to_csv(index=False).encode()),
    "Parquet": (
        "parquet",
        "application/vnd.apache.parquet",
        lambda frame: frame.to_parquet(index=False),
    ),
}


def origin_line(origins: Sequence[Origin]) -> None:
    """Draw the words for where step times come from; what they mean is its help."""
    words = " and ".join(map(in_colour, origins))
    meanings = "\n".join(f"- **{one}**: {MEANINGS[one]}" for one in origins)
    st.caption(f"Step times: {words}", help=meanings)


def in_colour(origin: Origin) -> str:
    """Return the word behind a square of its colour, as Streamlit's Markdown."""
    colour, _ = LOOKS[origin]
    return f':color[■]{{foreground="{colour}"}} {origin}'
