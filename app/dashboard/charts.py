"""A figure on a page, with what it shows in words, without needless buttons, and as a picture."""

from typing import Any

import streamlit as st

from servetwin.app.dashboard.formatting import escaped
from servetwin.app.dashboard.pictures.picture_buttons import picture_buttons
from servetwin.app.figures import Figure, alt_text, note_of
from servetwin.app.reports.run_words import made_by

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
    drawn = st.plotly_chart(figure, key=key, config=_CONFIG, alt=alt, **options)
    if note := note_of(figure):
        st.caption(escaped(note))
    if len(alt) <= _SHORT:
        st.caption(escaped(alt))
    else:
        with st.expander("The chart in words"):
            st.caption(escaped(alt.replace(". ", ".\n\n"), _MOST))
    picture_buttons(figure, key, source or made_by())
    return drawn
