"""``servetwin techniques table``: published figures beside ours, and why some differ.

All stand in ``published.json``, which the tests compute anew (``tests/sim/published``).
"""

import json
from importlib import resources
from textwrap import wrap
from typing import TypedDict

from servetwin.app.reports.table import table_lines
from servetwin.app.reports.tables import WIDTH
from servetwin.workloads.errors import PolicyError, did_you_mean

_MOST_SPELT_OUT = 1e15


class PublishedRow(TypedDict):
    """A figure as ``printed``, as computed ``here``, and ``why`` they differ; empty: they agree."""

    what: str
    printed: str
    here: float | str
    why: str


class PublishedTable(TypedDict):
    """The rows of a published table; ``items`` are the chapters of the notes."""

    title: str
    items: str
    rows: list[PublishedRow]


def published_tables() -> dict[str, PublishedTable]:
    """Return every table by name."""
    text = resources.files(__package__).joinpath("published.json").read_text(encoding="utf-8")
    tables: dict[str, PublishedTable] = json.loads(text)
    return tables


def find_table(name: str) -> PublishedTable:
    """Return a table by name; raises ``PolicyError`` with the nearest one, or with all."""
    tables = published_tables()
    if name not in tables:
        hint = did_you_mean(name, tables, f"there are {', '.join(tables)}")
        raise PolicyError(f"unknown table {name!r}; {hint}")
    return tables[name]


def titles() -> dict[str, str]:
    """Return the title of every table by its name."""
    tables = published_tables().items()
    return {name: f"{table['title']} ({table['items']})" for name, table in tables}


def published_lines(table: PublishedTable) -> list[str]:
    """Return the rows of a table, and below them why figures differ."""
    reasons = dict.fromkeys(row["why"] for row in table["rows"] if row["why"])
    numbers = {why: f"[{number}]" for number, why in enumerate(reasons, 1)}
    rows = [
        [row["what"], row["printed"], _number(row["here"]), numbers.get(row["why"], "")]
        for row in table["rows"]
    ]
    title = f"{table['title']} (items {table['items']} of the notes)"
    lines = [title, *table_lines(["", "notes", "here", ""], rows, "<>>>")]
    for why, number in numbers.items():
        lines += wrap(f"{number} {why}", WIDTH, subsequent_indent=" " * 4)
    return lines


def _number(number: float | str) -> str:
    """Return whole numbers in full, others in nine digits; texts as they are."""
    if isinstance(number, str):
        return number
    whole = number == int(number) and abs(number) < _MOST_SPELT_OUT
    return f"{number:.0f}" if whole else f"{number:.9g}"
