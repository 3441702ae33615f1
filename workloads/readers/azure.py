"""Azure LLM inference traces (Splitwise, ISCA 2024; DynamoLLM; ModServe): one stamp per request."""

from typing import NamedTuple

from servetwin.workloads.fields import cell_integer, stamp_ns
from servetwin.workloads.readers.columns import Columns, has_columns
from servetwin.workloads.request import Request
from servetwin.workloads.rows import Rows
from servetwin.workloads.trace import Trace

TIME, PROMPT, OUTPUT = COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
IMAGES = "NumImages"
"""Only in the multimodal trace."""


def recognises(row: str) -> bool:
    """Return whether the first row of a file has this format."""
    return has_columns(row, COLUMNS)


class Row(NamedTuple):
    """A row as it stands."""

    line: int
    stamp_ns: int
    prompt_tokens: int
    output_tokens: int
    modal: dict[str, int] | None


def read(rows: Rows) -> Trace:
    """Read the requests in file order; the earliest arrives at 0."""
    columns = Columns(rows, COLUMNS)
    parsed = rows.parse(lambda line, text: parse_row(line, columns.cells(text)))
    origin_ns = min((row.stamp_ns for row in parsed), default=0)
    return Trace(tuple(as_request(rows.source, row, origin_ns) for row in parsed), rows.source)


def parse_row(line: int, cells: dict[str, str]) -> Row:
    """Return a row of its cells."""
    stamp = stamp_ns(TIME, cells[TIME])
    prompt_tokens = cell_integer(PROMPT, cells[PROMPT], 1)
    output_tokens = cell_integer(OUTPUT, cells[OUTPUT], 0)
    modal = {"images": cell_integer(IMAGES, cells[IMAGES], 0)} if IMAGES in cells else None
    return Row(line, stamp, prompt_tokens, output_tokens, modal)


def as_request(source: str, row: Row, origin_ns: int) -> Request:
    """Return a row as a request of a trace that begins at ``origin_ns``."""
    return Request(
        request_id=f"{source}:{row.line - 1}",
        arrival_s=(row.stamp_ns - origin_ns) / 1e9,
        prompt_tokens=row.prompt_tokens,
        output_tokens=row.output_tokens,
        modal=row.modal,
        status="ok" if row.output_tokens else "failed",
        source_line=row.line,
    )
