"""Azure LLM inference traces (Splitwise, ISCA 2024; DynamoLLM): CSV with one stamp per request."""

import re
from datetime import UTC, datetime, timedelta

from workloads.fields import cell_integer
from workloads.request import Request
from workloads.rows import RowError, Rows
from workloads.trace import Trace

TIME, PROMPT, OUTPUT = COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")

_EPOCH = datetime.fromtimestamp(0, UTC)
_STAMP = re.compile(
    r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?", re.ASCII
)


def recognises(row: str) -> bool:
    """Whether the first row of a file is this format's."""
    return not row.startswith("{") and any(column in row for column in COLUMNS)


def read(rows: Rows) -> Trace:
    """The requests in file order; the earliest arrives at 0. Columns are found by name."""
    line, header = rows.take()
    names = [name.strip() for name in header.split(",")]
    for column in COLUMNS:
        if column not in names:
            raise rows.failure(line, RowError(column, "missing column", header))

    def parse(line: int, text: str) -> tuple[int, int, int, int]:
        cells = [cell.strip() for cell in text.split(",")]
        if len(cells) != len(names):
            raise RowError("row", f"has {len(cells)} cells where the header has {len(names)}", text)
        row = dict(zip(names, cells, strict=True))
        prompt_tokens = cell_integer(PROMPT, row[PROMPT], 1)
        return line, _stamp_ns(row[TIME]), prompt_tokens, cell_integer(OUTPUT, row[OUTPUT], 0)

    parsed = rows.parse(parse)
    origin_ns = min((stamp_ns for _, stamp_ns, _, _ in parsed), default=0)
    requests = (
        Request(
            request_id=f"{rows.source}:{line - 1}",
            arrival_s=(stamp_ns - origin_ns) / 1e9,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            status="ok" if output_tokens else "failed",
            source_line=line,
        )
        for line, stamp_ns, prompt_tokens, output_tokens in parsed
    )
    return Trace(tuple(requests), rows.source)


def _stamp_ns(text: str) -> int:
    """Integer nanoseconds: datetime would drop the seventh digit of the fraction."""
    match = _STAMP.fullmatch(text)
    if not match:
        raise RowError(TIME, "not a time like 2023-11-16 18:15:46.6805900", text)
    try:
        moment = datetime.fromisoformat(match[1] + (match[3] or "Z"))
    except ValueError:
        raise RowError(TIME, "no such time", text) from None
    return (moment - _EPOCH) // timedelta(seconds=1) * 10**9 + int((match[2] or "").ljust(9, "0"))
