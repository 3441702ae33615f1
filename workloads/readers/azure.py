"""Azure LLM inference traces (Splitwise, ISCA 2024; DynamoLLM; ModServe): one stamp per request."""

from workloads.fields import cell_integer, stamp_ns
from workloads.readers.columns import Columns
from workloads.request import Request
from workloads.rows import Rows
from workloads.trace import Trace

TIME, PROMPT, OUTPUT = COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
IMAGES = "NumImages"
"""Only in the multimodal trace."""


def recognises(row: str) -> bool:
    """Return whether the first row of a file has this format."""
    return not row.startswith("{") and any(column in row for column in COLUMNS)


def read(rows: Rows) -> Trace:
    """Read the requests in file order; the earliest arrives at 0."""
    columns = Columns(rows, COLUMNS)

    def parse(line: int, text: str) -> tuple[int, int, int, int, dict[str, int] | None]:
        cells = columns.cells(text)
        stamp = stamp_ns(TIME, cells[TIME])
        prompt_tokens = cell_integer(PROMPT, cells[PROMPT], 1)
        output_tokens = cell_integer(OUTPUT, cells[OUTPUT], 0)
        modal = {"images": cell_integer(IMAGES, cells[IMAGES], 0)} if IMAGES in cells else None
        return line, stamp, prompt_tokens, output_tokens, modal

    parsed = rows.parse(parse)
    origin_ns = min((stamp for _, stamp, *_ in parsed), default=0)
    requests = (
        Request(
            request_id=f"{rows.source}:{line - 1}",
            arrival_s=(stamp - origin_ns) / 1e9,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            modal=modal,
            status="ok" if output_tokens else "failed",
            source_line=line,
        )
        for line, stamp, prompt_tokens, output_tokens, modal in parsed
    )
    return Trace(tuple(requests), rows.source)
