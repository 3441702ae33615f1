"""The rows of a load test: what was recorded of each request.

Workers make them, so nothing here loads pandas or the simulator.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from servetwin.loadtest.http.exchange import Exchange, Failure
from servetwin.loadtest.plan.schedule import ScheduledRequest
from servetwin.loadtest.redaction import HIDDEN, hide_secrets, redact
from servetwin.loadtest.stream.doubts import Stall, drop_doubted_usage, is_buffered
from servetwin.loadtest.stream.stream_reader import TokenStream, read_stream

Row = dict[str, Any]
# The row of a request that has ended, and its failure.
MadeRow = tuple[Row, Failure | None]

_ID_LENGTH = 200
# What no client sees of a server.
UNSEEN: Row = {"preemptions": 0, "queue_s": np.nan, "replica": 0}
# The fields of a row that a ``TokenStream`` has by the same names.
_OF_A_STREAM = (
    "output_tokens", "cached_tokens", "first_chunk_tokens", "first_chunk_told", "tokens_from",
    "cached_reported", "reasoning_tokens",
)  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Sending(Exchange):
    """The exchange of a scheduled request, and its row as soon as that is made."""

    send: ScheduledRequest
    made: MadeRow | None = None


def request_rows(
    sendings: Sequence[Sending],
    zero_ns: int,
    unsent: str,
    read: Callable[[Exchange], TokenStream] = read_stream,
    stalls: Sequence[Stall] = (),
) -> tuple[list[Row], dict[str, str]]:
    """Return a row per request, stamps in seconds from zero, and the first message per failure.

    ``error`` holds the kind of failure (``loadtest.http.exchange.Failure``). ``unsent`` says why
    some requests were never sent. ``read`` returns the tokens of an exchange. ``stalls`` are those
    of the client's event loop. What cannot be seen from outside the server is empty:
    ``preemptions`` 0, ``queue_s`` undefined.
    """
    rows, first_messages = [], dict[str, str]()
    for sending in sendings:
        if sending.sent_ns is None and sending.failure is None:
            sending.failure = Failure("cancelled", f"not sent: {unsent}")
        row, failure = sending.made or made_row(sending, read(sending), zero_ns, stalls)
        rows.append(row)
        if failure and failure.kind not in first_messages:
            first_messages[failure.kind] = shown_message(sending.send, failure)
    return rows, first_messages


def made_row(
    sending: Sending, stream: TokenStream, zero_ns: int, stalls: Sequence[Stall] = ()
) -> MadeRow:
    """Return the row of one request that has ended; its stream loses counts that are doubted."""
    doubt = drop_doubted_usage(stream, sending.send.request.output_tokens)
    row = _row(sending, stream, zero_ns)
    row |= {"usage_doubt": doubt, "buffered": is_buffered(stream, sending.sent_ns, stalls)}
    return row, stream.failure


def shown_message(send: ScheduledRequest, failure: Failure) -> str:
    """Return the message of a failure without the headers of its request."""
    headers = send.request.headers
    return redact(failure.message, headers.values()) if headers else failure.message


def _row(sending: Sending, stream: TokenStream, zero_ns: int) -> Row:
    send = sending.send
    chunk_s = (np.array(stream.stamps_ns, dtype=np.int64) - zero_ns) / 1e9
    prompt_tokens = stream.prompt_tokens
    return {
        "request_id": send.request.request_id,
        "status": stream.failure.status if stream.failure else "finished",
        "scheduled_s": send.send_at_s,
        "sent_s": _since(zero_ns, sending.sent_ns),
        "first_token_s": chunk_s[0] if len(chunk_s) else np.nan,
        "last_token_s": _since(zero_ns, stream.last_ns),
        "prompt_tokens": send.request.prompt_tokens if prompt_tokens is None else prompt_tokens,
        **UNSEEN,
        **{name: getattr(stream, name) for name in _OF_A_STREAM},
        "error": stream.failure.kind if stream.failure else None,
        "asked_output_tokens": send.request.output_tokens,
        "first_event_s": _since(zero_ns, stream.first_event_ns),
        "first_sure_s": _since(zero_ns, stream.first_sure_ns),
        "first_output_s": _since(zero_ns, stream.first_output_ns),
        "chunk_s": chunk_s,
        "response_id": _response_id(send, stream),
        "attempts": sending.attempts,
        "model": send.model,
    }


def _response_id(send: ScheduledRequest, stream: TokenStream) -> str:
    """Return the server's name of the answer without secrets; those of one request as they are."""
    response_id = stream.response_id
    for value in (send.request.headers or {}).values():
        response_id = response_id.replace(value, HIDDEN)
    return hide_secrets(response_id, _ID_LENGTH)


def _since(zero_ns: int, stamp_ns: int | None) -> float:
    return float("nan") if stamp_ns is None else (stamp_ns - zero_ns) / 1e9
