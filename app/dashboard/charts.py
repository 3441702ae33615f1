"""A figure on a page, with what it shows in words and without needless buttons."""

from typing import Any

import streamlit as st

from app.dashboard.formatting import escaped
from app.figures import Figure, alt_text, note_of

_CONFIG = {"displaylogo": False, "modeBarButtonsToRemove": ["lasso2d", "select2d", "autoScale2d"]}
_SHORT, _MOST = 260, 10_000
"""Characters of a text below a figure, and of one that is folded."""


def chart(figure: Figure, key: str, **options: Any) -> Any:
    """Draw ``figure`` in the colours of the page, below it what it leaves out and what it shows;
    ``key`` keeps its place between reruns."""
    alt = alt_text(figure)
    drawn = st.plotly_chart(figure, key=key, config=_CONFIG, alt=alt, **options)
    if note := note_of(figure):
        st.caption(escaped(note))
    if len(alt) <= _SHORT:
        st.caption(escaped(alt))
    else:
        with st.expander("The chart in words"):
            st.caption(escaped(alt.replace(". ", ".\n\n"), _MOST))
    return drawn
