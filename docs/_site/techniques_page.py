"""The reference of techniques: what each does, its parameters, formula and source."""

from inspect import getdoc
from typing import Any, get_args

from markdown_table import table

from servetwin.app.reports.techniques.effects import catalogue
from servetwin.app.serving.techniques import SMALL, engine_forms, plain_setup
from servetwin.sim.techniques.registry import TECHNIQUES
from servetwin.sim.techniques.technique import Family

_INTRODUCTION = """# Techniques

```bash
servetwin techniques --only weight-int4
servetwin replay trace.jsonl --model llama-3-8b --gpu h100 --technique weight-int4:group=64
```

`--technique NAME:KEY=VALUE,...` and its opposite `--without` mean [the same](../techniques.md) in
every command; `servetwin techniques list` prints this table. All are simulated. The last column has
what the bundled engine runs too, by `servetwin serve --model small --technique` (or `--without`),
and so what `servetwin verify` measures. *always*: it is part of the measured speed of the kernels,
and cannot be taken away; -: it is refused, with the reason.
"""
_HEADS = (
    "name",
    "does",
    "parameters and defaults",
    "changes answers",
    "quality",
    "formula",
    "source",
    "bundled engine",
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
    facts = about["quality"], about["formula"], about["source"]
    return f"`{name}`", does, parameters, price, *facts, engine_cell(name)


def engine_cell(name: str) -> str:
    """Return the form of a technique that the bundled engine runs, ``always`` or ``-``."""
    if form := engine_forms().get(name):
        return f"`{form}`"
    is_there = TECHNIQUES.build(name).is_on(plain_setup(SMALL))
    return "always" if is_there else "-"
