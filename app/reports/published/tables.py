"""``servetwin techniques table``: figures of the notes beside ours, and why some differ."""

from collections.abc import Iterable
from textwrap import wrap
from typing import Any

from servetwin.app.reports.published import effects
from servetwin.app.reports.tables import WIDTH
from servetwin.sim.published.claim import Claim, Number
from servetwin.sim.published.errors import ERRORS
from servetwin.sim.published.tables import TABLES, find_table

_WHAT = 62
_CELL = 17
_MARK = 4
_MOST_SPELT_OUT = 1e15


def table_report(name: str) -> dict[str, Any]:
    """Return a table by name, unrounded; without a name, the titles of all.

    Raises ``PolicyError`` with the nearest name.
    """
    if not name:
        titles = {key: f"{table.title} ({table.items})" for key, table in TABLES.items()}
        return {"tables": {**effects.titles(), **titles}}
    table = find_table(name)
    rows = [_row(claim) for claim in table.rows()]
    return {"table": name, "title": table.title, "items": table.items, "rows": rows}


def table_lines(report: dict[str, Any]) -> list[str]:
    """Return the rows of a table and the reasons below them, or the names of all tables."""
    if "tables" in report:
        return [f"{name:<22}{title}" for name, title in report["tables"].items()]
    rows = report["rows"]
    reasons = {reason: number for number, reason in enumerate(_reasons(rows), 1)}
    head = f"{'':<{_WHAT}}{'notes':>{_CELL}}{'here':>{_CELL}}"
    lines = [f"{report['title']} (items {report['items']} of the notes)", head]
    lines += [_line(row, reasons) for row in rows]
    for reason, number in reasons.items():
        lines += wrap(f"[{number}] {reason}", WIDTH, subsequent_indent=" " * 4)
    return lines


def _row(claim: Claim) -> dict[str, Any]:
    error = claim.why if claim.why in ERRORS else None
    return {
        "what": claim.what,
        "printed": claim.printed,
        "here": claim.here,
        "agrees": claim.agrees,
        "error": error,
        "why": ERRORS[error] if error else claim.why,
    }


def _reasons(rows: Iterable[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(_reason(row) for row in rows if row["why"]))


def _reason(row: dict[str, Any]) -> str:
    return f"{row['error']}: {row['why']}" if row["error"] else str(row["why"])


def _line(row: dict[str, Any], reasons: dict[str, int]) -> str:
    mark = f"[{reasons[_reason(row)]}]" if row["why"] else ""
    cells = f"{row['printed']:>{_CELL}}{_number(row['here']):>{_CELL}}{mark:>{_MARK}}"
    return f"{row['what']:<{_WHAT}}{cells}".rstrip()


def _number(number: Number) -> str:
    """Return whole numbers in full, others in nine digits; texts as they are."""
    if isinstance(number, str):
        return number
    whole = number == int(number) and abs(number) < _MOST_SPELT_OUT
    return f"{number:.0f}" if whole else f"{number:.9g}"
