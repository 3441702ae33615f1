"""The reference of techniques: what each does, its parameters, formula and source."""

from inspect import getdoc
from typing import Any, get_args

from markdown_table import table

from servetwin.app.reports.techniques.effects import catalogue
from servetwin.sim.techniques.registry import TECHNIQUES
from servetwin.sim.techniques.technique import Family

_INTRODUCTION = """# Techniques

```bash
servetwin techniques --only weight-int4
servetwin replay trace.jsonl --model llama-3-8b --gpu h100 --technique weight-int4:group=64
```

`--technique NAME:KEY=VALUE,...` and its opposite `--without` mean [the same](../techniques.md) in
every command; `servetwin techniques list` prints this table.
"""
_HEADS = (
    "name",
    "does",
    "parameters and defaults",
    "changes answers",
    "quality",
    "formula",
    "source",
)


def techniques_page() -> str:
    """Return the page as Markdown."""
    return "\n".join([_INTRODUCTION, *map(_section, get_args(Family))])


def _section(family: str) -> str:
    rows = [_row(name, about) for name, about in catalogue().items() if about["family"] == family]
    return f"## {family}\n\n{table(_HEADS, rows)}"


def _row(name: str, about: dict[str, Any]) -> tuple[str, ...]:
    does = " ".join((getdoc(TECHNIQUES[name]) or "").split())
    parameters = ", ".join(f"`{key}={value}`" for key, value in about["parameters"].items())
    price = "no" if about["lossless"] else "yes"
    return f"`{name}`", does, parameters, price, about["quality"], about["formula"], about["source"]
