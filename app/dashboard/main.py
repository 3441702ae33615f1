"""The dashboard's script: the scenario at the side, the pages along the top."""

import streamlit as st

from app.dashboard.compare.page import page as compare
from app.dashboard.frontier.page import page as frontier
from app.dashboard.load_test.page import page as load_test
from app.dashboard.network import OPEN_WARNING, is_loopback
from app.dashboard.policies.page import page as policies
from app.dashboard.runs.page import page as runs
from app.dashboard.scenario.sidebar import scenario_at_the_side
from app.dashboard.scenario.url_state import complain_of_link
from app.dashboard.techniques.page import page as techniques
from app.dashboard.timeline.page import page as timeline
from app.dashboard.trust.page import page as trust
from app.dashboard.what_if.page import page as what_if

st.set_page_config(page_title="Servetwin", page_icon="🎛️", layout="wide")
chosen = st.navigation(
    [
        st.Page(what_if, title="What if", url_path="what-if", default=True),
        st.Page(compare, title="Compare", url_path="compare"),
        st.Page(frontier, title="Frontier", url_path="frontier"),
        st.Page(policies, title="Policies", url_path="policies"),
        st.Page(timeline, title="Timeline", url_path="timeline"),
        st.Page(trust, title="Trust", url_path="trust"),
        st.Page(techniques, title="Techniques", url_path="techniques"),
        st.Page(load_test, title="Load test", url_path="load-test"),
        st.Page(runs, title="Runs", url_path="runs"),
    ],
    position="top",
)
complain_of_link()
scenario_at_the_side()
if not is_loopback(st.get_option("server.address") or ""):
    st.sidebar.warning(f"Open to the network: {OPEN_WARNING}.", icon=":material/public:")
chosen.run()
