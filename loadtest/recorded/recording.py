"""What a load tester or a server recorded of requests, whatever its file format."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from servetwin.workloads import fields
from servetwin.workloads.block_ids import Ids
from servetwin.workloads.readers.native import is_header
from servetwin.workloads.rows import RowError

# Why arrivals are missing, where nothing more is known.
NO_ARRIVALS = "the file has none"


class Record(NamedTuple):
    """A JSON object, or a row of a CSV file, and the place where it stands."""

    place: str
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One request, with stamps in seconds on the clock of the file; None: not recorded.

    ``chunk_s`` are the stamps of all tokens' arrivals, ``queue_s`` the seconds from arrival to the
    first step, ``error`` says why it failed. ``prefix_block_ids`` as in ``workloads.request``.
    """

    request_id: str
    prompt_tokens: int
    output_tokens: int
    arrival_s: float | None
    first_token_s: float | None = None
    last_token_s: float | None = None
    chunk_s: tuple[float, ...] = ()
    queue_s: float | None = None
    cached_tokens: int | None = None
    prefix_block_ids: Ids = ()
    block_tokens: int | None = None
    error: str | None = None

    def check(self) -> None:
        """Raise ``RowError`` for stamps that go backwards, or a finished request without any, and
        for texts that no file can have.
        """
        fields.text("request_id", self.request_id)
        fields.text("error", self.error or "")
        if self.error is not None:
            return
        if self.prompt_tokens < 1:
            raise RowError("prompt_tokens", "must be at least 1", self.prompt_tokens)
        if self.output_tokens < 1:
            raise RowError("output_tokens", "0 in a request without an error", self.output_tokens)
        stamps = (
            ("arrival", self.arrival_s),
            ("first token", self.first_token_s),
            ("last token", self.last_token_s),
        )
        known = [(name, stamp) for name, stamp in stamps if stamp is not None]
        if len(known) < 2:
            raise RowError("row", "no times of this request", self.request_id)
        for name, stamp in known:
            if abs(stamp) > fields.MAX_SECONDS:
                beyond = f"beyond {fields.MAX_SECONDS:,.0f} s: in ms or us?"
                raise RowError(f"{name} stamp", beyond, stamp)
        for (before, earlier), (name, later) in pairwise(known):
            if later < earlier:
                raise RowError(
                    f"{name} stamp", f"{earlier - later:.6g} s before the {before}", later
                )
        for earlier, later in pairwise(self.chunk_s):
            if later < earlier:
                raise RowError("token stamps", f"{earlier - later:.6g} s backwards", later)


@dataclass(frozen=True, slots=True)
class Recording:
    """All requests of a file, in its order; ``notes`` say what the format lacks.

    ``no_arrivals`` says why arrivals are missing, for a file that has none.
    """

    tool: str
    requests: Sequence[RecordedRequest]
    notes: tuple[str, ...] = ()
    no_arrivals: str = NO_ARRIVALS


def records_of(text: str) -> list[Record]:
    """Return the objects of a JSON document, a JSON array, or JSON Lines without our own header.

    Raises ``RowError`` that names the line of what is no JSON object.
    """
    whole = _value(text)
    if whole is None:
        lines = enumerate(text.split("\n"), 1)
        return [_line(n, line) for n, line in lines if line.strip() and not is_header(line)]
    listed = whole if isinstance(whole, list) else [whole]
    for number, item in enumerate(listed):
        if not isinstance(item, dict):
            raise RowError(f"[{number}]", "not a JSON object", item)
    if isinstance(whole, list):
        return [Record(f"[{number}]", item) for number, item in enumerate(listed)]
    return [Record("line 1", whole)]


def _line(number: int, line: str) -> Record:
    record = _value(line)
    if not isinstance(record, dict):
        raise RowError(f"line {number}", "not a JSON object", line)
    return Record(f"line {number}", record)


def _value(text: str) -> Any:
    """Return the JSON object or list, and ``None`` for what is neither.

    The end is looked at first: a scanner copies a text of 100 MB to find that it has none.
    """
    end = text[-1000:].rstrip()
    if end and end[-1] not in "]}":
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
