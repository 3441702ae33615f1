"""A figure on a page, with its alternative text and without needless buttons."""

from typing import Any

import streamlit as st

from app.dashboard.formatting import escaped
from app.figures import Figure, alt_text, note_of

_CONFIG = {"displaylogo": False, "modeBarButtonsToRemove": ["lasso2d", "select2d", "autoScale2d"]}


def chart(figure: Figure, key: str, **options: Any) -> Any:
    """Draw ``figure`` in the colours of the page, and below it what it leaves out; ``key`` keeps
    its place between reruns."""
    drawn = st.plotly_chart(figure, key=key, config=_CONFIG, alt=alt_text(figure), **options)
    if note := note_of(figure):
        st.caption(escaped(note))
    return drawn
