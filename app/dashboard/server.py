"""The dashboard's server, as ``streamlit run`` starts it: Streamlit's own application, guarded."""

from pathlib import Path

from starlette.middleware import Middleware
from streamlit.starlette import App

from app.dashboard.security_headers import SecurityHeaders

app = App(Path(__file__).with_name("main.py"), middleware=[Middleware(SecurityHeaders)])
