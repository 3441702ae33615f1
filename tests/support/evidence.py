"""The tables of the evidence of the documentation, as tests read them."""

from evidence_page import cells, tables

TABLES = {entry["name"]: entry for entry in tables()}


def rows(name: str) -> list[list[str]]:
    """The rows of a table, cell by cell."""
    return cells(TABLES[name])[1:]


def number(cell: str) -> float:
    """A figure with its thousands apart, or in per cent."""
    return float(cell.replace(",", "").removesuffix("%"))
