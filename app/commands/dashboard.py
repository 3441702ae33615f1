"""``servetwin dashboard``: the what-if dashboard in a browser."""

import os
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from servetwin.app.scenario.options.common import Additions
from servetwin.app.scenario.options.groups import takes_options
from servetwin.workloads.errors import ServetwinError
from servetwin.workloads.program.loopback import is_loopback

SERVER = Path(__file__).parents[1] / "dashboard" / "server.py"


@takes_options()
def dashboard(
    added: Additions,
    port: Annotated[int, Option(help="Port to listen on.", min=1, max=65_535)] = 8501,
    headless: Annotated[bool, Option("--headless", help="Do not open a browser.")] = False,
    host: Annotated[
        str, Option(help="Address to listen on; 0.0.0.0 lets others in.")
    ] = "127.0.0.1",
) -> None:
    """Open the what-if dashboard; Ctrl-C ends it."""
    missing = [name for name in ("streamlit", "plotly") if find_spec(name) is None]
    if missing:
        raise ServetwinError(f"dashboard needs {', '.join(missing)}: pip install 'servetwin[app]'")
    from servetwin.app.words import asset_table
    from servetwin.loadtest.endpoint import server_url
    from servetwin.sim.step_times.profile import load_profile
    from servetwin.workloads.program.child_process import python_command, python_environment

    for path in added.profiles:
        load_profile(str(path))
    for target in added.targets:
        server_url(target)
    profiles = tuple(path.resolve() for path in added.profiles)
    added = replace(added, profiles=profiles, runs=added.runs.resolve())
    if not is_loopback(host):
        warning = asset_table("words.yaml")["open to the network"]
        typer.echo(f"warning: {warning}; --host 127.0.0.1 keeps it here", err=True)
    command = python_command(
        "-m", "streamlit", "run", str(SERVER),
        "--server.port", str(port), "--server.address", host,
        "--server.headless", str(headless).lower(), *_shown_address(host), "--",
        added.as_argument(),
    )  # fmt: skip
    os.execve(sys.executable, command, python_environment())


def _shown_address(host: str) -> tuple[str, ...]:
    """Return options by which Streamlit asks no other server for the addresses of this one."""
    everywhere = host in ("0.0.0.0", "::")
    return ("--browser.serverAddress", "localhost") if everywhere else ()
