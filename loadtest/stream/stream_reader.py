"""Reads a recorded answer: its bytes, their framing, the tokens in it, and how it ended.

Bytes are not parsed when they arrive, so that parsing never delays a stamp. An event has the stamp
of the piece that completed it.
"""

from collections.abc import Iterable, Iterator

import httpx

from servetwin.loadtest.http.connection import BODY_LIMIT
from servetwin.loadtest.http.exchange import Exchange, Failure
from servetwin.loadtest.http.recorded_reads import ReadSpan, RecordedReads
from servetwin.loadtest.redaction import hide_secrets, redact
from servetwin.loadtest.stream import event_framing
from servetwin.loadtest.stream.token_events import SHOWN, TokenStream, settle, take_event, take_run

__all__ = ["StreamReader", "TokenStream", "read_stream"]

# Kept of a body; the failure of one without tokens shows the beginning.
_START_BYTES = 400
_MANY = 1000
# Decoded at once, since a few compressed bytes may be many.
_DECODED_BYTES = 4096


def read_stream(exchange: Exchange) -> TokenStream:
    """Read a whole recorded answer; ``failure`` says what makes it incomplete, if anything."""
    return StreamReader(exchange).end()


class StreamReader:
    """Reads an answer in steps: some while it comes in, the rest at the end.

    ``stream`` has the tokens read so far, ``pieces`` is the number of pieces read.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.stream = TokenStream()
        self._framing: event_framing.Framing | None = None
        self._start = b""
        self._held = b""
        self._stamp_ns = 0
        self.pieces = 0
        self._ended = False

    def advance(self, most: int) -> int:
        """Read at most ``most`` of the pieces that are here and return how many were read.

        An answer with a content-encoding is decoded as a whole at the end: 0.
        """
        reads = self._exchange.reads
        if not isinstance(reads, RecordedReads) or _encoding(self._exchange):
            return 0
        span = reads.span(self.pieces, most if self._framing else 1)
        self.pieces += len(span.ends)
        for part in span.pieces() if b"\r" in span.data else [span]:
            self._take(part)
        return len(span.ends)

    def end(self) -> TokenStream:
        """Read the rest of an answer that has ended, set its failure, and return its tokens."""
        if self._ended:
            return self.stream
        self._ended = True
        while self.advance(_MANY):
            pass
        if not self.pieces:
            self._take_decoded()
        if self._framing:
            self._take_events(self._framing.end(), ReadSpan(b"", [self._stamp_ns], [0]))
        self.stream.is_lines = isinstance(self._framing, event_framing.JsonLines)
        settle(self.stream)
        self.stream.failure = self.stream.failure or self._failure()
        return self.stream

    def _take_decoded(self) -> None:
        try:
            for stamp_ns, data in decoded(self._exchange):
                self._take(ReadSpan(data, [stamp_ns], [len(data)]))
        except httpx.DecodingError as error:
            self.stream.failure = Failure("broken_stream", redact(str(error)))

    def _take(self, span: ReadSpan) -> None:
        if not span.data:
            return
        if len(self._start) < _START_BYTES:
            self._start += span.data[: _START_BYTES - len(self._start)]
        self._stamp_ns = span.stamps_ns[-1]
        framing = self._framing
        in_run = isinstance(framing, event_framing.ServerSentEvents) and framing.between_events
        if in_run and take_run(self.stream, span.stamps_ns, span.ends, span.data):
            return
        data = self._begun(span.data) if framing is None else span.data
        if self._framing:
            self._take_events(self._framing.feed(data), span)

    def _begun(self, data: bytes) -> bytes:
        """Choose the framing once it shows, and return the bytes that are to be read then."""
        self._held += data
        self._framing = event_framing.framing_of(self._held)
        if self._framing is None:
            return b""
        start, self._held = event_framing.without_mark(self._held), b""
        return start

    def _take_events(self, events: Iterator[event_framing.FramedEvent], span: ReadSpan) -> None:
        """Take events, each with the stamp of the piece in which it ends."""
        stream, piece, last = self.stream, 0, len(span.ends) - 1
        for end, payload in events:
            while piece < last and span.ends[piece] < end:
                piece += 1
            if stream.done or stream.failure:
                break  # events that still come are ignored
            take_event(stream, span.stamps_ns[piece], payload)

    def _failure(self) -> Failure | None:
        """Return what was wrong with the end of a stream whose events were all in order."""
        stream, exchange = self.stream, self._exchange
        if exchange.failure and not stream.done:
            return exchange.failure
        if not stream.stamps_ns:
            start = hide_secrets(self._start.decode(errors="replace"), SHOWN)
            return Failure("no_token", redact(f"no event with text; the body begins {start!r}"))
        if not (stream.done or stream.finished):
            return Failure("broken_stream", "ended without finish_reason and without [DONE]")
        return None


def _encoding(exchange: Exchange) -> str | None:
    return exchange.headers.get("content-encoding") if exchange.headers else None


def decoded(exchange: Exchange) -> Iterator[tuple[int, bytes]]:
    """Yield the pieces without their content-encoding, decoded by httpx.

    Raises ``httpx.DecodingError`` for what is broken, or unpacks to more than a server may answer.
    """
    encoding = _encoding(exchange)
    if not encoding:
        yield from exchange.reads
        return
    replay = _Replay(exchange.reads)
    response = httpx.Response(200, headers={"content-encoding": encoding}, stream=replay)
    size_bytes = 0
    for data in response.iter_bytes():
        size_bytes += len(data)
        if size_bytes > BODY_LIMIT:
            raise httpx.DecodingError(f"more than {BODY_LIMIT >> 20} MiB in one answer")
        yield replay.stamp_ns, data


class _Replay(httpx.SyncByteStream):
    """The recorded pieces as a response body; ``stamp_ns`` is the stamp of the last one given."""

    def __init__(self, reads: Iterable[tuple[int, bytes]]) -> None:
        self._reads = reads
        self.stamp_ns = 0

    def __iter__(self) -> Iterator[bytes]:
        for stamp_ns, data in self._reads:
            self.stamp_ns = stamp_ns
            for at in range(0, len(data), _DECODED_BYTES):
                yield data[at : at + _DECODED_BYTES]
