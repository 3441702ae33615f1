"""What the dashboard is for, in a sentence, and an example at one click."""

import streamlit as st

from servetwin.app.dashboard.compare.page import page as compare
from servetwin.app.dashboard.compare.policy_comparison import POLICIES_KEY

BUTTON = "Show me static against continuous batching"
BATCHING = ("static+contiguous", "continuous+contiguous")
_SENTENCE = (
    "Servetwin predicts what the users of a language model would see: each request waits for its "
    "place in a batch, then gets its answer token by token. Change the scenario at the side, and "
    "all figures are simulated anew."
)


def first_visit() -> None:
    """Draw the sentence, and the button that fills Compare with the example."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(_SENTENCE, width="stretch")
        if st.button(BUTTON):
            page = st.Page(compare, title="Compare", url_path="compare")
            st.switch_page(page, query_params={POLICIES_KEY: BATCHING})
