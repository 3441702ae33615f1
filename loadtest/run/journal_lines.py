"""The lines of a journal (``loadtest.run.journal``), made in the process that sends.

A line is the row of a request (``loadtest.report.rows``) with its chunks as nanoseconds of its
process's clock, ``zero_ns`` on that clock, and the ``message`` of its failure.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from servetwin.loadtest.report.rows import Row, Sending, made_row, shown_message
from servetwin.loadtest.stream.doubts import Stall
from servetwin.loadtest.stream.stream_reader import TokenStream

# Return an object as one line of JSON, without its end.
encoded = json.JSONEncoder(separators=(",", ":"), check_circular=False, default=str).encode


class JournalLines:
    """The lines of the requests of one process that have ended since the last call of ``take``.

    ``stalls`` are those of its event loop; they grow meanwhile.
    """

    def __init__(self, stalls: Sequence[Stall]) -> None:
        self._stalls = stalls
        self._lines: list[str] = []

    def add(self, sending: Sending, stream: TokenStream, zero_ns: int) -> None:
        """Add a request whose answer has been read to its end, and keep its row."""
        row, failure = sending.made = made_row(sending, stream, zero_ns, self._stalls)
        message = shown_message(sending.send, failure) if failure else None
        line = {**row, "chunk_s": stream.stamps_ns.tolist(), "zero_ns": zero_ns, "message": message}
        self._lines.append(encoded(line))

    def take(self) -> bytes:
        """Return the lines, and begin anew."""
        lines, self._lines = self._lines, []
        return "".join(f"{line}\n" for line in lines).encode()


def read_lines(lines: Iterable[dict[str, Any]]) -> tuple[list[Row], dict[str, str]]:
    """Return the rows of lines that were decoded, and the first message of each kind of failure.

    Raises ``KeyError`` or ``TypeError`` where one is no line of a request.
    """
    rows, first_messages = [], dict[str, str]()
    for line in lines:
        row = dict(line)
        zero_ns, message = row.pop("zero_ns"), row.pop("message")
        row["chunk_s"] = (np.array(row["chunk_s"], dtype=np.int64) - zero_ns) / 1e9
        rows.append(row)
        if message is not None:
            first_messages.setdefault(row["error"], message)
    return rows, first_messages
