"""Published figures beside ours, and why some differ, as ``published.json`` keeps them."""

import json
from pathlib import Path
from typing import TypedDict

PATH = Path(__file__).with_name("published.json")


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
    tables: dict[str, PublishedTable] = json.loads(PATH.read_text(encoding="utf-8"))
    return tables
