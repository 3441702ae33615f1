"""What pages show of their results: figures, the data to download, where step times come from."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from servetwin.app.dashboard.formatting import escaped
from servetwin.app.dashboard.pictures import picture_buttons
from servetwin.app.figures import Figure, alt_text, note_of
from servetwin.app.reports.run_words import made_by
from servetwin.app.words import LOOKS
from servetwin.sim.step_times.provenance import MEANINGS, Origin

_CONFIG = {
    "displaylogo": False,
    "modeBarButtonsToRemove": ["lasso2d", "select2d", "autoScale2d", "toImage"],
}
_SHORT, _MOST = 260, 10_000
"""Characters of a text below a figure, and of one that is folded."""


def chart(figure: Figure, key: str, source: str | None = None, **options: Any) -> Any:
    """Draw ``figure`` in the colours of the page; ``key`` keeps its place between reruns.

    Below stand what it leaves out, what it shows, and buttons that save it as a picture, on which
    ``source`` says what was simulated or measured.
    """
    alt = alt_text(figure)
    selection = st.plotly_chart(figure, key=key, config=_CONFIG, alt=alt, **options)
    if note := note_of(figure):
        st.caption(escaped(note))
    if len(alt) <= _SHORT:
        st.caption(escaped(alt))
    else:
        with st.expander("The chart in words"):
            st.caption(escaped(alt.replace(". ", ".\n\n"), _MOST))
    picture_buttons(figure, key, source or made_by())
    return selection


def charts_by_two(charts: Iterable[tuple[str, Figure, str]], source: str) -> None:
    """Draw charts two in a row, each below its title; a chart is (title, figure, key)."""
    for place, (title, figure, key) in enumerate(charts):
        if place % 2 == 0:
            columns = st.columns(2)
        with columns[place % 2]:
            st.markdown(f"**{title}**")
            chart(figure, key, source)


def table(frame: pd.DataFrame, alt: str, file: str | None = None, **options: Any) -> None:
    """Draw a table without its index, and offer its data as a ``file``; ``alt`` says what it
    holds."""
    st.dataframe(frame, hide_index=True, placeholder="-", alt=alt, **options)
    if file:
        downloads(frame, file)


def downloads(frame: pd.DataFrame, name: str) -> None:
    """Draw buttons for ``frame`` as CSV and as Parquet; a file is made when it is pressed."""
    with st.container(horizontal=True):
        for kind, (ending, media_type, packed) in _KINDS.items():
            st.download_button(
                f"Data as {kind}", partial(packed, frame), f"{name}.{ending}", media_type,
                key=f"{name}_{ending}", on_click="ignore",
            )  # fmt: skip


def _parquet(frame: pd.DataFrame) -> bytes:
    return frame.to_parquet(index=False)


_KINDS = {
    "CSV": ("csv", "text/csv", lambda frame: frame.to_csv(index=False).encode()),
    "Parquet": ("parquet", "application/vnd.apache.parquet", _parquet),
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
