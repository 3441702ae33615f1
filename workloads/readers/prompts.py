"""Prompts: JSON Lines, a JSON array or a CSV file with ``prompt`` or ``text``.

Beside it may stand the output length, or an answer. Cells of the CSV file may be quoted, and then
hold commas, quotes and line ends.
"""

from servetwin.workloads import fields as check
from servetwin.workloads.readers import prompt_records
from servetwin.workloads.readers.prompt_fields import prompt_content
from servetwin.workloads.request import Request
from servetwin.workloads.rows import RowError, Rows
from servetwin.workloads.tables.names import meanings
from servetwin.workloads.tables.table import Cells, Table, delimiter_of, split_cells
from servetwin.workloads.trace import Trace

FIELDS = ("prompt", "text")
# Fields of our own traces, which may have a prompt too.
_OF_TRACES = ("prompt_tokens", "arrival_s")


def recognises(row: str) -> bool:
    """Return whether the first row of a file has this format."""
    names = check.keys(row) if row.startswith("{") else set(split_cells(row, delimiter_of(row)))
    if names.isdisjoint(FIELDS) or not names.isdisjoint(_OF_TRACES):
        return False
    return not any("arrival" in meanings(name) for name in names)


def read(rows: Rows) -> Trace:
    """Read a request per prompt, in file order; all arrive at 0."""
    _, first = rows.peek()
    return (
        prompt_records.read_records(rows, prompt_of) if first.startswith("{") else _read_csv(rows)
    )


def prompt_of(record: prompt_records.Record) -> prompt_records.Exchange:
    """Return the prompt of a record, with its answer where there is one."""
    field = prompt_records.first_of(record, FIELDS)
    if field is None:
        raise RowError(" or ".join(FIELDS), "missing", dict(record))
    return prompt_records.Exchange(prompt_content(*field), prompt_records.answer_of(record))


def _read_csv(rows: Rows) -> Trace:
    table, records = Table(rows), prompt_records.PromptRecords(rows, prompt_of)

    def parse(line: int, cells: Cells) -> Request | None:
        told = {name: cell for name, cell in cells.items() if cell or name in FIELDS}
        return records.request(line, told)

    return records.trace(table.parsed(parse))
