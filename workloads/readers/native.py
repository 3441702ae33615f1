"""Our own trace format, read and written: JSON Lines, a header record, then the requests."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from servetwin.workloads import fields as check
from servetwin.workloads.block_ids import Chains, Ids
from servetwin.workloads.errors import TraceError
from servetwin.workloads.fields import request_headers, without_headers
from servetwin.workloads.files import open_text, write_whole
from servetwin.workloads.generators.chaining import shared_length
from servetwin.workloads.graphs.links import without_broken_links
from servetwin.workloads.readers.prompt_fields import prompt_content
from servetwin.workloads.request import Request
from servetwin.workloads.rows import NumberedRow, RowError, Rows, utf8
from servetwin.workloads.trace import DEFAULTS, Requests, Trace, as_columns, column

SCHEMA = "servetwin-trace-1"
# The fields of a record.
Fields = dict[str, Any]


def write_trace(trace: Trace, path: str | Path) -> None:
    """Write a trace, gzipped if the name ends in ``.gz``; a failed write leaves no partial file.

    ``read_trace`` gives the same requests back. Raises TraceError for a trace without requests or
    a place that cannot be written.
    """
    if not trace.requests:
        raise TraceError(f"{path}: nothing to write, the trace has no requests")
    write_whole(Path(path), trace_text(trace))


def is_trace(path: Path) -> bool:
    """Return whether a file is a trace that ``write_trace`` wrote."""
    try:
        with open_text(path) as lines:
            return is_header(next(iter(lines), ""))
    except TraceError:
        return False


def is_header(row: str) -> bool:
    """Return whether a row is the header of a trace that ``write_trace`` wrote."""
    return row.startswith(f'{{"schema": "{SCHEMA}"')


def trace_text(trace: Trace) -> str:
    """Return the lines of a trace's file."""
    header, blocks = _header(trace), _BlocksSoFar()
    hidden = {"headers", "prefix_block_ids", "answer_block_ids", *header}
    columns = as_columns(trace.requests).columns
    names = [field.name for field in fields(Request) if field.name in columns.keys() - hidden]
    records = [
        {n: v for n, v in zip(names, row, strict=True) if v != DEFAULTS[n]} | blocks.added(request)
        for request, *row in zip(trace, *(columns[name].tolist() for name in names), strict=True)
    ]
    return "".join(json.dumps(record, default=dict) + "\n" for record in [header, *records])


def _header(trace: Trace) -> dict[str, Any]:
    header: dict[str, Any] = {"schema": SCHEMA, "source": trace.source}
    block_sizes = {request.block_tokens for request in trace}
    if len(block_sizes) == 1 and None not in block_sizes:
        header["block_tokens"] = block_sizes.pop()
    if trace.clock_s is not None:
        header["clock_s"] = trace.clock_s
    if not trace.timed:
        header["timed"] = False
    if trace.notes:
        header["notes"] = trace.notes
    return header


class _BlocksSoFar:
    """The ids of blocks of the requests so far, in a file where a turn has its new ones alone.

    ``parent_blocks`` of a record are the leading ids that it takes from its first parent: those of
    its prompt, then those of its answer. Its own ids follow.
    """

    def __init__(self) -> None:
        self._chains = Chains()
        self._ids: dict[str, Ids] = {}

    def added(self, request: Request) -> dict[str, Any]:
        """Return the fields of blocks of a request's record."""
        ids, answer = request.prefix_block_ids, request.answer_block_ids
        shared = shared_length(ids, self._ids.get((*request.parent_ids, "")[0], ()))
        self._ids[request.request_id] = ids + answer
        values = {
            "parent_blocks": shared,
            "prefix_block_ids": list(ids[shared:]),
            "answer_block_ids": list(answer),
        }
        return {name: value for name, value in values.items() if value}

    def make_whole(self, fields: dict[str, Any]) -> None:
        """Put the ids of its parent before those of a record. Raises ``RowError``."""
        ids, shared = fields.get("prefix_block_ids", ()), fields.pop("parent_blocks", 0)
        answer = fields.get("answer_block_ids", ())
        if not (shared or ids or answer):
            return
        if shared:
            parent = (*fields.get("parent_ids", ()), "")[0]
            known = self._ids.get(parent, ())
            if len(known) < shared:
                reason = f"{parent!r} before it has {len(known)} ids of blocks"
                raise RowError("parent_blocks", reason, shared)
            ids = known[:shared] + tuple(ids)
        else:
            ids = self._chains.of(ids)
        if ids:
            fields["prefix_block_ids"] = ids
        self._ids[fields["request_id"]] = ids + answer


_HEADER, _FORMAT = check.RecordFormat.of("native header"), check.RecordFormat.of("native")
_FIELDS = {**_FORMAT.checks, "prompt": prompt_content}
# What a recorded trace has beside its requests (``loadtest.recorded`` reads it).
MEASURED = ("first_token_s", "last_token_s", "cached_tokens", "error")
_KNOWN = {*_FIELDS, *MEASURED}
# The fields of most records, which depend on no other field.
_PLAIN = check.RecordFormat.of("native plain").checks
# Rows that are read at once where all are plain.
_PART_ROWS = 1024


def recognises(row: str) -> bool:
    """Return whether the first row of a file may have this format: any JSON object."""
    return row.startswith("{")


def read(rows: Rows) -> Trace:
    """Read the requests in file order, failed ones included; fields it does not know make a note.

    A file without a header is its own source: its line numbers become the ``source_line``.
    """
    reader = RecordReader(rows)
    parsed = rows.parsed(reader.decoded(rows.parts(_PART_ROWS)), reader.parse)
    requests: Sequence[Request] = Requests.of_records([fields for _, fields in parsed])
    if any(column(requests, "parent_ids")):
        numbered = [(line, each) for (line, _), each in zip(parsed, requests, strict=True)]
        requests = tuple(without_broken_links(rows, numbered, "parent_ids"))
    notes = (*reader.header.get("notes", ()), *reader.notes)
    clock_s, timed = reader.header.get("clock_s"), reader.header.get("timed", True)
    return Trace(requests, reader.source, clock_s, notes, timed)


def _take_header(rows: Rows) -> dict[str, Any] | None:
    line, row = rows.peek()
    try:
        record = check.json_object(row)
    except RowError:
        return None  # reported, or skipped, as a row
    if record.keys() & {*_FORMAT.required} or not record.keys() & _HEADER.checks.keys():
        return None
    rows.take()
    try:
        return _HEADER.checked(record)
    except RowError as error:
        raise rows.failure(line, error) from None


class RecordReader:
    """Takes the header of a file, then turns records into requests.

    It remembers the unknown fields it has seen, and the ids.
    """

    def __init__(self, rows: Rows) -> None:
        header = _take_header(rows)
        self.header = header or {}
        self.first_line = 1 if header is None else 2
        self.source = self.header.get("source", rows.source)
        self._header_columns = rows.header_columns
        self._is_plain = bool(header) and not ("block_tokens" in self.header or rows.header_columns)
        self._seen: set[str] = set()
        self._blocks = _BlocksSoFar()
        self._unknown: set[str] = set()

    def decoded(self, parts: Iterable[list[NumberedRow]]) -> Iterator[tuple[int, str | Fields]]:
        """Yield the rows; those of a part that is plain and right as fields, read at once."""
        for part in parts:
            records = _plain_records([text for _, text in part]) if self._is_plain else []
            names = {record["request_id"] for record in records}
            if len(names) == len(part) and names.isdisjoint(self._seen):
                self._seen |= names
                yield from zip((line for line, _ in part), records, strict=True)
            else:
                yield from part

    def parse(self, line: int, row: str | Fields) -> tuple[int, Fields]:
        """Return the line of a record and its fields. Raises ``RowError``."""
        if not isinstance(row, str):
            return line, row
        whole = check.json_object(utf8(row))
        record = without_headers(whole, self._header_columns)
        fields = self._defaults(line) | check.checked(record, _FIELDS, _FORMAT.required)
        if parent := fields.pop("parent_id", None):
            fields["parent_ids"] = (parent, *fields.get("parent_ids", ()))
        if (name := fields["request_id"]) in self._seen:
            raise RowError("request_id", "duplicate", name)
        self._seen.add(name)
        self._blocks.make_whole(fields)
        _check_together(fields)
        self._unknown.update(record.keys() - _KNOWN)
        fields["headers"] = request_headers(whole, self._header_columns)
        return line, fields

    @property
    def notes(self) -> tuple[str, ...]:
        """The note on fields that were left out."""
        if not self._unknown:
            return ()
        return (f"unknown fields left out: {', '.join(sorted(self._unknown))}",)

    def _defaults(self, line: int) -> dict[str, Any]:
        fields: dict[str, Any] = {"request_id": f"{self.source}:{line - self.first_line + 1}"}
        if "block_tokens" in self.header:
            fields["block_tokens"] = self.header["block_tokens"]
        if not self.header:
            fields["source_line"] = line
        return fields


def _plain_records(rows: list[str]) -> list[Fields]:
    """Return the checked fields of rows that are plain; none where one is not, or is wrong."""
    text = ",\n".join(rows)  # a string that goes on in the next row is no JSON
    if not text.isascii() or "\\" in text or not all(row.startswith("{") for row in rows):
        return []
    try:
        records: list[Fields] = json.loads(f"[{text}]")
        for name, checked in _PLAIN.items():
            for record in records:
                record[name] = checked(name, record[name])
    except (ValueError, RecursionError, KeyError, TypeError, RowError):
        return []
    return records if set(map(len, records)) == {len(_PLAIN)} else []


def _check_together(fields: dict[str, Any]) -> None:
    failed = fields.get("status") == "failed"
    if fields["prompt_tokens"] == 0 and not failed:
        raise RowError("prompt_tokens", "must be at least 1", 0)
    if fields["output_tokens"] == 0 and not failed:
        raise RowError("output_tokens", "0 only where status is failed", 0)
    check.check_reasoning(fields, "reasoning_tokens")
    if fields.get("prefix_block_ids") and "block_tokens" not in fields:
        raise RowError("block_tokens", "missing beside prefix_block_ids", None)
    if answered := fields.get("answer_block_ids"):
        _check_answer(fields, len(answered))


def _check_answer(fields: dict[str, Any], answered: int) -> None:
    """Demand that ids of the answer follow ids of all full blocks of the prompt."""
    size, prompt = fields.get("block_tokens"), fields["prompt_tokens"]
    if size is None:
        raise RowError("block_tokens", "missing beside answer_block_ids", None)
    if len(fields.get("prefix_block_ids", ())) != prompt // size:
        wanted = f"wants prefix_block_ids of the {prompt // size} full blocks of the prompt"
        raise RowError("answer_block_ids", wanted, list(fields["answer_block_ids"]))
    most = (prompt + fields["output_tokens"]) // size - prompt // size
    if answered > most:
        many = f"at most {most}, one for each full block that ends in the answer"
        raise RowError("answer_block_ids", many, list(fields["answer_block_ids"]))
