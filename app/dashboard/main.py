"""The dashboard's script: the scenario at the side, the pages along the top."""

import streamlit as st

from servetwin.app.dashboard.pages import FIRST, PAGES, drawing
from servetwin.app.dashboard.pictures import load_picture_script
from servetwin.app.dashboard.scenario.sidebar import scenario_at_the_side
from servetwin.app.dashboard.scenario.url_state import complain_of_link
from servetwin.app.dashboard.widgets import show_set_controls
from servetwin.app.words import asset_table
from servetwin.workloads.program.loopback import is_loopback

st.set_page_config(page_title="Servetwin", page_icon="🎛️", layout="wide", initial_sidebar_state=330)
chosen = st.navigation(
    [
        st.Page(drawing(name), title=title, url_path=name, default=name == FIRST)
        for name, title in PAGES.items()
    ],
    position="top",
)
show_set_controls()
complain_of_link()
scenario_at_the_side()
with st.sidebar:
    load_picture_script()
if not is_loopback(st.get_option("server.address") or ""):
    warning = asset_table("words.yaml")["open to the network"]
    st.sidebar.warning(f"Open to the network: {warning}.", icon=":material/public:")
chosen.run()
