"""Records of prompts, whatever file they come from, become requests without times.

A record says its output length, or has an answer; without either every request of the file gets
``DEFAULT_OUTPUT_TOKENS``. Lengths are estimates until a tokenizer counts them
(``workloads.tokenizer``).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from servetwin.workloads import fields as check
from servetwin.workloads.fields import request_headers, without_headers
from servetwin.workloads.readers.prompt_fields import estimated_tokens, texts_of
from servetwin.workloads.request import PromptContent, Request
from servetwin.workloads.rows import RowError, Rows, counted
from servetwin.workloads.tables.moments import cell_count
from servetwin.workloads.tables.names import meanings, says_tokens
from servetwin.workloads.trace import Trace

DEFAULT_OUTPUT_TOKENS = 128
LENGTH_COLUMNS = ("output_tokens", "max_tokens", "max_completion_tokens", "output_len")
ANSWER_COLUMNS = ("answer", "completion", "response")

NO_TIMES = "no arrival times: every request arrives at 0; --rate spreads them"
ESTIMATED = "lengths estimated at 4 bytes a token; --tokenizer counts them"

Record = Mapping[str, Any]


class Exchange(NamedTuple):
    """The prompt of a record, and perhaps its answer."""

    prompt: PromptContent
    answer: str | None = None


# Takes the prompt of a record; None for a record without one that could be sent.
TakeRecord = Callable[[Record], Exchange | None]


class PromptRecords:
    """Turns records of one file into requests, in their order."""

    def __init__(self, rows: Rows, take: TakeRecord) -> None:
        self._rows = rows
        self._take = take
        self._records = 0
        self._left_out = 0
        self._without_length = 0
        self._stamps: list[str] = []

    def request(self, line: int, record: Record) -> Request | None:
        """Return the request of the next record. Raises ``RowError``."""
        if not self._records:
            self._stamps = [name for name in record if "arrival" in meanings(name)]
        self._records += 1
        try:
            exchange = self._take(without_headers(record, self._rows.header_columns))
            if exchange is None:
                self._left_out += 1
                return None
            return self._request(line, record, exchange)
        except RowError as error:
            raise (
                error.inside(f"[{self._records - 1}]") if self._rows.is_array else error
            ) from None

    def trace(self, requests: Iterable[Request | None]) -> Trace:
        """Return the trace of the requests, with notes on what is assumed."""
        taken = tuple(filter(None, requests))
        notes = [NO_TIMES, ESTIMATED]
        notes += [
            f"{name}: not read, as prompts stand alone in this format" for name in self._stamps
        ]
        if self._without_length:
            unknown = counted(self._without_length, "prompt")
            notes.append(f"{unknown} without an output length: {DEFAULT_OUTPUT_TOKENS} assumed")
        if self._left_out:
            notes.append(f"{counted(self._left_out, 'conversation')} without an answer left out")
        return Trace(taken, self._rows.source, notes=tuple(notes), timed=False)

    def _request(self, line: int, record: Record, exchange: Exchange) -> Request:
        stated = _stated_tokens(record)
        answered = None if exchange.answer is None else estimated_tokens([exchange.answer])
        self._without_length += stated is None and answered is None
        return Request(
            request_id=f"{self._rows.source}:{self._records}",
            arrival_s=0.0,
            prompt_tokens=estimated_tokens([*texts_of(exchange.prompt)]),
            output_tokens=stated or answered or DEFAULT_OUTPUT_TOKENS,
            source_line=line,
            prompt=exchange.prompt,
            answer=None if stated else exchange.answer,
            headers=request_headers(record, self._rows.header_columns),
        )


def read_records(rows: Rows, take: TakeRecord) -> Trace:
    """Read JSON Lines, or a JSON array, of records."""
    records = PromptRecords(rows, take)
    parsed = rows.parse(lambda line, text: records.request(line, check.json_object(text)))
    return records.trace(parsed)


def first_of(record: Record, names: Iterable[str]) -> tuple[str, Any] | None:
    """Return the first of some fields that a record has and that is not null, by its name."""
    return next(((name, record[name]) for name in names if record.get(name) is not None), None)


def answer_of(record: Record) -> str | None:
    """Return the answer that stands beside a prompt; None without one, or for an empty one."""
    field = first_of(record, ANSWER_COLUMNS)
    return check.text(*field) or None if field else None


def _stated_tokens(record: Record) -> int | None:
    """Return the output length that a record states, also as the text of a CSV cell."""
    told = (name for name in record if says_tokens(name) and "output_tokens" in meanings(name))
    field = first_of(record, (*LENGTH_COLUMNS, *told))
    if field is None or field[1] == "":
        return None
    name, value = field
    if isinstance(value, str):
        return cell_count(name, value.strip(), 1)
    length: int = check.integer(1)(name, value)
    return length
