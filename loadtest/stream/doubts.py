"""What cannot be believed of an answer: impossible token counts, and tokens that all come at once.

The output tokens are doubted where they are negative, fewer than the events that surely hold one,
more than the limit that was sent and than the stream shows, or of several choices together. The
events of the first choice are believed then. The prompt tokens are doubted where they are negative
or beyond any context, and those in the cache where they are negative or more than the prompt: the
trace is believed then.

A proxy that compresses, or collects the whole answer before it passes it on, makes TTFT the time of
the whole answer and leaves nothing of TPOT. An answer is buffered where

- it is one JSON object instead of a stream, with more than one token;
- or its tokens came faster than any server makes them for one request, although the first of them
  was not fast at all. Of few tokens, and of an answer that was here at once, this cannot be said,
  nor of one that came while the client itself stood still.
"""

from collections.abc import Sequence
from typing import Literal

from servetwin.loadtest.stream.token_events import TokenStream

Doubt = Literal["negative", "fewer", "more", "choices", "prompt", "cached"]

MOST_PROMPT_TOKENS = 10**9


def drop_doubted_usage(stream: TokenStream, asked_tokens: int) -> Doubt | None:
    """Drop the counts of the usage that cannot be true; return what is wrong with the first."""
    doubts = [*_doubts_of_output(stream, asked_tokens), *_doubts_of_prompt(stream)]
    return doubts[0] if doubts else None


def _doubts_of_output(stream: TokenStream, asked_tokens: int) -> list[Doubt]:
    made, most = stream.usage_count("completion_tokens"), max(asked_tokens, shown_tokens(stream))
    believed = made is not None and not stream.others and sure_tokens(stream) <= made <= most
    if sum(stream.tokens) > (made if made is not None and believed else most):
        # Some usage in an event says so, and only one token in each event is sure.
        stream.tokens = [1] * len(stream.tokens)
        stream.reported = bytearray(len(stream.tokens))
    if made is None or believed:
        return []
    _drop(stream, "completion_tokens")
    if stream.others:
        return ["choices"]
    return ["negative" if made < 0 else "fewer" if made < most else "more"]


def sure_tokens(stream: TokenStream) -> int:
    """Return how many events surely hold a token."""
    return len(stream.tokens) - len(stream.silent)


def shown_tokens(stream: TokenStream) -> int:
    """Return the most tokens that the stream shows: one an event, or the ids that it lists."""
    without_text = len(stream.unspoken) + (stream.ending is not None)
    return len(stream.tokens) + without_text + stream.listed


def _doubts_of_prompt(stream: TokenStream) -> list[Doubt]:
    doubts: list[Doubt] = []
    prompt_tokens = stream.prompt_tokens
    if prompt_tokens is not None and not 0 <= prompt_tokens <= MOST_PROMPT_TOKENS:
        _drop(stream, "prompt_tokens")
        doubts.append("prompt")
        prompt_tokens = None
    most = MOST_PROMPT_TOKENS if prompt_tokens is None else prompt_tokens
    if not 0 <= stream.cached_tokens <= most:
        _drop(stream, "prompt_tokens_details")
        doubts.append("cached")
    return doubts


def _drop(stream: TokenStream, name: str) -> None:
    stream.usage = {key: value for key, value in stream.usage.items() if key != name}


LEAST_TOKENS = 16
# No server makes 20,000 tokens a second for one request; the fastest make some thousands.
FASTEST_TOKEN_S = 50e-6
# An answer of a really fast server is whole by then.
LEAST_WAIT_S = 0.020
# Tokens of a fast server come this far apart: so many fit into a stall of the client.
STALLED_TOKEN_S = 1e-3

# When the client's event loop stood still: begin and end on ``time.perf_counter_ns``.
Stall = tuple[int, int]


def is_buffered(
    stream: TokenStream, sent_ns: int | None, stalls: Sequence[Stall] = ()
) -> bool | None:
    """Return whether a complete answer came in one piece.

    None where the client cannot tell: its event loop stood still, while the answer was on its way,
    for as long as a fast server takes to make all of its tokens.
    """
    stamps_ns, tokens = stream.stamps_ns, stream.output_tokens - stream.unseen_tokens
    if sent_ns is None or not stamps_ns:
        return False
    if stream.is_lines and len(stamps_ns) == 1:
        return tokens > 1
    took_s = (stamps_ns[-1] - stamps_ns[0]) / 1e9
    waited_s = (stamps_ns[0] - sent_ns) / 1e9
    at_once = took_s < (tokens - 1) * FASTEST_TOKEN_S
    if not (tokens >= LEAST_TOKENS and at_once and waited_s > LEAST_WAIT_S):
        return False
    meanwhile = (end - begin for begin, end in stalls if end > sent_ns and begin < stamps_ns[-1])
    return None if max(meanwhile, default=0) >= (tokens - 1) * STALLED_TOKEN_S * 1e9 else True
