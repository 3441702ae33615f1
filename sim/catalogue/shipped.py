"""The files of the catalogue that come with the package, and their names.

Importing this needs no description of a model or device.
"""

from functools import cache
from importlib import resources


@cache
def shipped(folder: str) -> list[str]:
    """Return the names of the entries in a folder of the catalogue."""
    entries = resources.files("servetwin.sim").joinpath("catalogue", folder).iterdir()
    return sorted(entry.name[:-5] for entry in entries if entry.name.endswith(".json"))


def shipped_text(folder: str, name: str) -> str:
    """Return the JSON of an entry."""
    path = resources.files("servetwin.sim").joinpath("catalogue", folder, f"{name}.json")
    return path.read_text("utf-8")


def shipped_models() -> list[str]:
    """Return the names of the models that come as files, which ``docs/catalogues.md`` lists."""
    return shipped("models")


def shipped_hardware() -> list[str]:
    """Return the names of the devices that come with the package."""
    return shipped("devices")
