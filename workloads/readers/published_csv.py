"""The published CSV formats: a request a row, its fields found by the names of the columns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from servetwin.workloads.fields import FORMATS, cell_seconds, stamp_ns
from servetwin.workloads.rows import RowError, Rows, counted
from servetwin.workloads.tables.moments import cell_count
from servetwin.workloads.tables.names import meanings
from servetwin.workloads.tables.table import Cells, Table, split_cells
from servetwin.workloads.trace import Requests, Trace

Kind = Literal["count", "seconds", "stamp", "text"]
# The values of a row by field; a stamp is in nanoseconds since 1970.
Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, what its cells are, the least of its counts; some cells may be empty."""

    name: str
    kind: Kind
    least: int = 0
    may_be_empty: bool = False

    def value(self, cell: str, least: int) -> Any:
        """Return the value of a cell. Raises ``RowError``."""
        if self.may_be_empty and not cell:
            return None
        if self.kind == "count":
            return cell_count(self.name, cell, least)
        if self.kind == "seconds":
            return cell_seconds(self.name, cell)
        return stamp_ns(self.name, cell) if self.kind == "stamp" else cell


def has_columns(row: str, names: Sequence[str]) -> bool:
    """Return whether a row is a header with all of these columns."""
    return not row.startswith("{") and {*names} <= {*split_cells(row, ",")}


class CsvReader:
    """Reads the format of a ``name`` in ``formats.json``.

    Its ``columns`` are by field, in the order in which a row is checked; every file has the
    ``required`` ones. Where it ``begins_at_zero``, the earliest request arrives at 0, whatever its
    stamp; where a ``failed_may_be_empty``, its prompt may have 0 tokens.
    """

    name: ClassVar[str]

    def __init__(self) -> None:
        described = FORMATS[self.name]
        self.columns = {field: Column(**each) for field, each in described["columns"].items()}
        self.required: Sequence[str] = described["required"]
        self.begins_at_zero: bool = described.get("begins_at_zero", True)
        self.failed_may_be_empty: bool = described.get("failed_may_be_empty", False)
        self.time = self.columns["time"]

    def recognises(self, row: str) -> bool:
        """Return whether the first row of a file has this format."""
        return has_columns(row, self.required)

    def read(self, rows: Rows) -> Trace:
        """Read the requests in file order; one without an answer has failed."""
        table = Table(rows)
        for name in self.required:
            if name not in table.names:
                error = RowError(name, "missing column", ",".join(table.names))
                raise rows.failure(table.line, error)
        parsed = table.parsed(self.parse)
        origin = min((row["time"] for row in parsed), default=0) if self.begins_at_zero else 0
        requests = Requests.of_records([*self.records(rows.source, parsed, origin)])
        differing = sum(map(_differs, parsed))
        notes = (f"{counted(differing, 'row')} whose total is not the sum",) if differing else ()
        return Trace(requests, rows.source, self.clock_s(parsed), notes)

    def parse(self, line: int, cells: Cells) -> Values:
        """Return the values of a row. Raises ``RowError``."""
        values: Values = {"line": line, "time": 0.0}
        for field, column in self.columns.items():
            if column.name in cells:
                may_be_empty = self.failed_may_be_empty and not values.get("output_tokens", 1)
                least = 0 if may_be_empty and field == "prompt_tokens" else column.least
                values[field] = column.value(cells[column.name], least)
        return values

    def records(self, source: str, parsed: Sequence[Values], origin: float) -> Iterator[Values]:
        """Yield the fields of the requests of all rows; times since the stamp ``origin``."""
        for row in parsed:
            since = row["time"] - origin
            yield {
                "request_id": _row_name(source, row),
                "arrival_s": since / 1e9 if isinstance(row["time"], int) else since,
                **{name: row[name] for name in _FIELDS if name in row},
                "modal": {"images": row["images"]} if "images" in row else None,
                "status": "ok" if row["output_tokens"] else "failed",
                "source_line": row["line"],
            }

    def clock_s(self, parsed: Sequence[Values]) -> float | None:
        """Return the resolution of the clock, where it is coarse."""
        return None


# Of a request, as a row has them.
_FIELDS = ("prompt_tokens", "output_tokens", "model", "kind")


def _row_name(source: str, row: Values) -> str:
    return f"{source}:{row['line'] - 1}"


def _differs(row: Values) -> bool:
    """Return whether the total of a row is not the sum of its tokens."""
    return row.get("total_tokens") not in (None, row["prompt_tokens"] + row["output_tokens"])


class Azure(CsvReader):
    """Azure LLM inference traces (Splitwise, ISCA 2024; DynamoLLM; ModServe): a stamp per request.

    Only the multimodal trace has images.
    """

    name = "azure"


class BurstGPT(CsvReader):
    """BurstGPT traces (Wang et al., KDD 2025): CSV of 6 columns, or of 8 with sessions.

    A row follows the previous row of its session, ``delay_s`` after that one's elapsed time.
    """

    name = "burstgpt"

    def clock_s(self, parsed: Sequence[Values]) -> float | None:
        """Return 1 s where no stamp has a fraction."""
        return 1.0 if all(row["time"].is_integer() for row in parsed) else None

    def records(self, source: str, parsed: Sequence[Values], origin: float) -> Iterator[Values]:
        """Yield the fields of the requests of all rows; each follows the one before in its
        session."""
        latest: dict[str, tuple[Values, int]] = {}
        for row, record in zip(parsed, super().records(source, parsed, origin), strict=True):
            if session_id := row.get("session_id"):
                before, turn = latest.get(session_id, (None, 0))
                record |= {"session_id": session_id, "turn": turn}
                if before:
                    record["parent_ids"] = (_row_name(source, before),)
                    record["delay_s"] = _delay_s(before, row)
                latest[session_id] = row, turn + 1
            yield record


def _delay_s(before: Values, row: Values) -> float | None:
    elapsed_s = before.get("elapsed_s")
    return None if elapsed_s is None else max(0.0, row["time"] - before["time"] - elapsed_s)


class Vidur(CsvReader):
    """Vidur's processed traces (Agrawal et al., MLSys 2024): CSV of lengths, perhaps arrivals."""

    name = "vidur"

    def recognises(self, row: str) -> bool:
        """Return whether a header has the lengths, and no arrivals of another name."""
        if not has_columns(row, self.required):
            return False
        if has_columns(row, (self.time.name,)):
            return True
        return not any("arrival" in meanings(name) for name in split_cells(row, ","))

    def read(self, rows: Rows) -> Trace:
        """Read as the other formats, with a note where there are no arrivals."""
        _, header = rows.peek()
        trace = super().read(rows)
        if has_columns(header, (self.time.name,)):
            return trace
        untimed = "no arrival times in the file: every request arrives at 0"
        return Trace(trace.requests, trace.source, notes=(untimed, *trace.notes))
