"""Sessions whose rows count only the tokens they add, made whole prompts."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from workloads.generators.chaining import ROOT, Chaining
from workloads.request import Request

WHOLE_PROMPTS = "message_array_with_responses"
"""AIPerf's name of the context mode in which a row's prompt is whole although it has a delay."""


class Turn(NamedTuple):
    """A row as it stands, whether it has a time of its own, and whether its prompt is whole."""

    request: Request
    stamped: bool
    whole: bool


def whole_prompts(turns: Iterable[Turn]) -> Iterator[Request]:
    """Give each request its whole prompt, and the row before it in its session as parent.

    A row that only adds has the parent's prompt and answer before its own tokens; the answer's
    blocks have no ids in the file, so they get ids that nothing else shares. Without a time of its
    own a row arrives its delay (0 if unsaid) after its parent did: a lower bound.
    """
    chaining = Chaining()
    latest: dict[str | None, Request] = {}
    for turn in turns:
        session_id = turn.request.session_id
        parent = latest.get(session_id)
        request = _following(parent, turn, chaining) if parent else _first(turn.request, chaining)
        if session_id is not None:
            latest[session_id] = request
        yield request


def _first(request: Request, chaining: Chaining) -> Request:
    ids = chaining.chained(request.prefix_block_ids)
    turn = None if request.session_id is None else 0
    return replace(request, prefix_block_ids=ids, turn=turn, delay_s=None)


def _following(parent: Request, turn: Turn, chaining: Chaining) -> Request:
    request = turn.request
    if turn.whole:
        prompt_tokens = request.prompt_tokens
        ids = chaining.chained(request.prefix_block_ids)
    else:
        prompt_tokens = parent.total_tokens + request.prompt_tokens
        ids = _appended(parent, request, prompt_tokens, chaining)
    delay_s = request.delay_s if turn.stamped else request.delay_s or 0.0
    return replace(
        request,
        arrival_s=request.arrival_s if turn.stamped else parent.arrival_s + (delay_s or 0.0),
        prompt_tokens=prompt_tokens,
        prefix_block_ids=ids,
        parent_id=parent.request_id,
        turn=(parent.turn or 0) + 1,
        delay_s=delay_s,
    )


def _appended(
    parent: Request, request: Request, prompt_tokens: int, chaining: Chaining
) -> tuple[int, ...]:
    """Join the parent's ids, new ids for its answer and the row's ids: one per started block."""
    block_tokens = request.block_tokens or 1
    started = -(-prompt_tokens // block_tokens)
    known = parent.prefix_block_ids
    if not (known or request.prefix_block_ids):
        return ()
    missing = max(0, started - len(known) - len(request.prefix_block_ids))
    known += chaining.private(missing, known[-1] if known else ROOT)
    added = chaining.chained(request.prefix_block_ids, known[-1] if known else ROOT)
    return (known + added)[:started]
