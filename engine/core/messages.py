"""What the HTTP process and the core process say to each other."""

from typing import Any, Literal, NamedTuple

from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.sampling.token_state import TokenLogprobs
from servetwin.workloads.errors import ServetwinError

FinishReason = Literal["stop", "length"]


class Add(NamedTuple):
    """A request comes in."""

    request_id: str
    token_ids: list[int]
    params: SamplingParams


class Abort(NamedTuple):
    """End a request whose client has gone away; no event follows."""

    request_id: str


class Stop(NamedTuple):
    """End the core after its step."""


class Ping(NamedTuple):
    """Ask for a ``Pong``, which the core sends between two steps."""


Message = Add | Abort | Stop | Ping


class TokenEvent(NamedTuple):
    """One sampled token; the last one of an answer says why it is the last."""

    request_id: str
    token_id: int
    finish_reason: FinishReason | None
    cached_tokens: int
    """Prompt tokens that came out of the prefix cache."""
    text: str = ""
    """What the token adds to the text; the receiver makes it, to keep the core's thread free."""
    sample: int = 0
    """Which of several answers to the prompt it belongs to."""
    logprobs: TokenLogprobs | None = None
    """Where the request wants them."""
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    """Of the prompt's tokens, with the first token of each answer where the request wants them."""


class Refused(NamedTuple):
    """The scheduler did not take the request in; ``kind`` as in ``policies.protocols.Refusal``."""

    request_id: str
    kind: Literal["too_long", "queue_full", "too_late", "unsupported", "over_quota"]
    reason: str


class RequestFailed(NamedTuple):
    """The request raised an exception in the core, and was ended by it alone."""

    request_id: str
    reason: str


class CoreStats(NamedTuple):
    """The core at the end of a step.

    ``kv_usage`` is the share of the KV memory that could not be given out now, 0 .. 1;
    ``step_tokens`` counts the positions of the last step. What follows ``kv_usage`` are totals
    since the core's start otherwise: ``prefix_queries`` are prompt tokens looked up in the prefix
    cache, and ``prefix_hits`` those found there; ``draft_passes`` are passes of a sequence that
    verified drafts, ``drafted_tokens`` the tokens drafted for them, ``accepted_tokens`` those that
    the target accepted.
    """

    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0
    preemptions: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    steps: int = 0
    step_tokens: int = 0
    draft_passes: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0


def one_line(error: Exception) -> str:
    """Return an exception as one line of an error event."""
    text = " ".join(str(error).split())
    return text if isinstance(error, ServetwinError) else f"{type(error).__name__}: {text}"


class Update(NamedTuple):
    """All that one turn of the core has to tell."""

    events: list[TokenEvent | Refused | RequestFailed]
    stats: CoreStats


class Pong(NamedTuple):
    """The answer to a ``Ping``."""


class Ready(NamedTuple):
    """The core has started."""

    facts: dict[str, Any]
    """As ``GET /servetwin/engine`` shows them."""


class Failed(NamedTuple):
    """The core could not start, or a step raised; it ends."""

    message: str
