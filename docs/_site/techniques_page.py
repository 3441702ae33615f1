"""The reference of techniques: every one with its parameters."""

from typing import Any, get_args

from markdown_table import table

from servetwin.app.reports.techniques.effects import catalogue
from servetwin.sim.techniques.technique import Family

_INTRODUCTION = """# Techniques

`--technique NAME:KEY=VALUE,...` and its opposite `--without` of `replay` and `serve`, and `--only`
of `techniques`; [on and off](../guides/techniques.md) mean the same in all of them. The pages of
the families have the assumptions, the figures and the pictures; `servetwin techniques list` prints
this table.
"""
_HEADS = ("name", "parameters and defaults", "changes answers", "quality", "formula", "source")


def techniques_page() -> str:
    """Return the page as Markdown."""
    return "\n".join([_INTRODUCTION, *map(_section, get_args(Family))])


def _section(family: str) -> str:
    rows = [_row(name, about) for name, about in catalogue().items() if about["family"] == family]
    return f"## [{family}](../techniques/{family}.md)\n\n{table(_HEADS, rows)}"


def _row(name: str, about: dict[str, Any]) -> tuple[str, ...]:
    parameters = ", ".join(f"`{key}={value}`" for key, value in about["parameters"].items())
    price = "no" if about["lossless"] else "yes"
    quality = about["quality"]
    return f"`{name}`", parameters, price, quality, about["formula"], about["source"]
