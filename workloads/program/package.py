"""This program as a package: its version, and the files that come with it."""

import json
from importlib import resources
from typing import Any


def own_version() -> str:
    """Return the installed version; "unknown" where nothing is installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("servetwin")
    except PackageNotFoundError:
        return "unknown"


def shipped_json(path: str) -> Any:
    """Return a JSON file that comes with the package, such as ``sim/catalogue/units.json``."""
    room, _, name = path.partition("/")
    return json.loads(resources.files(f"servetwin.{room}").joinpath(name).read_text("utf-8"))
