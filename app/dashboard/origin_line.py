"""Where step times come from, as a line of a page: its words, each with its colour."""

from collections.abc import Sequence

import streamlit as st

from servetwin.app.words import LOOKS
from servetwin.sim.step_times.provenance import MEANINGS, Origin


def origin_line(origins: Sequence[Origin]) -> None:
    """Draw the words for where step times come from; what they mean is its help."""
    said = " and ".join(map(in_colour, origins))
    meanings = "\n".join(f"- **{one}**: {MEANINGS[one]}" for one in origins)
    st.caption(f"Step times: {said}", help=meanings)


def in_colour(origin: Origin) -> str:
    """Return the word behind a square of its colour, as Streamlit's Markdown."""
    colour, _ = LOOKS[origin]
    return f':color[■]{{foreground="{colour}"}} {origin}'
