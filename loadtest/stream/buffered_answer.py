"""Whether an answer came in one piece although its tokens were made one after the other.

A proxy that compresses, or collects the whole answer before it passes it on, makes TTFT the time of
the whole answer and leaves nothing of TPOT. An answer is taken for buffered where

- it is one JSON object instead of a stream, with more than one token;
- or its tokens came faster than any server makes them for one request, although the first of them
  was not fast at all. Of few tokens, and of an answer that was here at once, this cannot be said.
"""

from servetwin.loadtest.stream.token_events import TokenStream

LEAST_TOKENS = 16
FASTEST_TOKEN_S = 50e-6
"""No server makes 20,000 tokens a second for one request; the fastest make some thousands."""
LEAST_WAIT_S = 0.020
"""An answer of a really fast server is whole by then."""


def is_buffered(stream: TokenStream, sent_ns: int | None) -> bool:
    """Return whether a complete answer came in one piece."""
    stamps_ns, tokens = stream.stamps_ns, stream.output_tokens
    if sent_ns is None or not stamps_ns:
        return False
    if stream.is_lines and len(stamps_ns) == 1:
        return tokens > 1
    took_s = (stamps_ns[-1] - stamps_ns[0]) / 1e9
    waited_s = (stamps_ns[0] - sent_ns) / 1e9
    at_once = took_s < (tokens - 1) * FASTEST_TOKEN_S
    return tokens >= LEAST_TOKENS and at_once and waited_s > LEAST_WAIT_S
