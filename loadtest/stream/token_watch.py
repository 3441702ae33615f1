"""Has an answer so many tokens yet? For the few that are watched while they come in."""

from loadtest.http.exchange import Exchange
from loadtest.http.recorded_reads import RecordedReads
from loadtest.stream.stream import StreamReader


class TokenWatch:
    """Reads an answer as it comes, beside those who record it."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens
        self._reads = RecordedReads()
        self._reader = StreamReader(Exchange(reads=self._reads))

    def __call__(self, data: bytes) -> bool:
        """Whether the answer has them with these bytes, and is not at its end."""
        self._reads.add(0, data)
        self._reader.advance(1)
        stream = self._reader.stream
        return sum(stream.tokens) >= self._tokens and not (stream.done or stream.finished)
