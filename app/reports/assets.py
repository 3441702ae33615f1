"""The texts and the tables of words and looks in ``app/assets``."""

from functools import cache
from importlib.resources import files
from typing import Any

import yaml


def asset(name: str) -> str:
    """Read a text of ``app/assets``."""
    return files("servetwin.app").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def asset_table(name: str) -> dict[str, Any]:
    """Return what a YAML file of ``app/assets`` holds, by name."""
    table: dict[str, Any] = yaml.safe_load(asset(name))
    return table
