"""The dashboard's script: the scenario at the side, the pages along the top."""

import streamlit as st

from app.dashboard.links import complain_of_link
from app.dashboard.sidebar import scenario_at_the_side
from app.dashboard.views import (
    compare,
    frontier,
    load_test,
    policy_grid,
    runs,
    techniques,
    timeline,
    trust,
    what_if,
)

st.set_page_config(page_title="Servetwin", page_icon="🎛️", layout="wide")
complain_of_link()
scenario_at_the_side()
st.navigation(
    [
        st.Page(what_if.page, title="What if", url_path="what-if", default=True),
        st.Page(compare.page, title="Compare", url_path="compare"),
        st.Page(frontier.page, title="Frontier", url_path="frontier"),
        st.Page(policy_grid.page, title="Policies", url_path="policies"),
        st.Page(timeline.page, title="Timeline", url_path="timeline"),
        st.Page(trust.page, title="Trust", url_path="trust"),
        st.Page(techniques.page, title="Techniques", url_path="techniques"),
        st.Page(load_test.page, title="Load test", url_path="load-test"),
        st.Page(runs.page, title="Runs", url_path="runs"),
    ],
    position="top",
).run()
