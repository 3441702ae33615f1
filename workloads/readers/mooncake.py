"""Mooncake traces (Qin et al., FAST 2025): JSON Lines with one chained id per 512 tokens.

Also the dialects of NVIDIA Dynamo and AIPerf, which add sessions, and Dynamo's of agents, whose
rows have names and ``wait_for`` others.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from servetwin.workloads import fields as check
from servetwin.workloads.block_ids import Ids
from servetwin.workloads.generators.chaining import ROOT, Chaining
from servetwin.workloads.graphs.links import without_broken_links
from servetwin.workloads.graphs.task_graph import earliest_arrivals_s
from servetwin.workloads.request import Request
from servetwin.workloads.rows import RowError, Rows, counted
from servetwin.workloads.trace import Trace

BLOCK_TOKENS = 512
# Blocks that rows of agents may have; the file does not say which.
_AGENT_BLOCKS = (BLOCK_TOKENS, 256, 128, 64, 32, 16)
# A clock counts as coarse where more than this share of the gaps is 0.
COARSE_CLOCK_TIES = 0.2

# AIPerf's name of the context mode in which a row's prompt is whole although it has a delay.
WHOLE_PROMPTS = "message_array_with_responses"

_FORMAT = check.RecordFormat.of("mooncake")
# Stamps of agents are milliseconds too, but may have fractions.
_AGENT_FIELDS = {**_FORMAT.checks, "timestamp": check.seconds}
recognises = _FORMAT.recognises


class Turn(NamedTuple):
    """A row as it stands, whether it has a time and a name, and whether its prompt is whole."""

    request: Request
    stamped: bool
    whole: bool
    named: bool = False


def read(rows: Rows) -> Trace:
    """Read the requests in file order, at the file's own times, and the clock's tick if it is
    coarse.

    In a session, a row counts only what it adds to the row before it, unless it has a time and no
    ``delay``; here every prompt is whole. A session without a time starts at 0.
    """
    turns = rows.parse(lambda line, row: parse_row(rows.source, line, check.json_object(row)))
    requests = [turn.request for turn in turns]
    clock_s = _clock_s([turn.request.arrival_s for turn in turns if turn.stamped])
    notes: tuple[str, ...] = ()
    if any(turn.named for turn in turns):
        return Trace(tuple(_of_agents(rows, requests)), rows.source, clock_s)
    if any(request.session_id is not None for request in requests):
        requests = list(whole_prompts(turns))
        notes = _notes(turns, requests)
    return Trace(tuple(requests), rows.source, clock_s, notes)


def parse_row(source: str, line: int, record: dict[str, Any]) -> Turn:
    """Return a row as it stands. Raises ``RowError``."""
    prompt, output = _name(record, "input"), _name(record, "output")
    in_session = record.get("session_id") is not None
    named = record.get("request_id") is not None
    alone = not (in_session or named)
    if record.get("wait_for") and not named:
        raise RowError("request_id", "missing beside wait_for", None)
    if record.get("delay") is not None and alone:
        raise RowError("session_id", "missing beside delay", None)
    required = ("timestamp", prompt, output, "hash_ids") if alone else (prompt, output)
    fields = check.checked(record, _AGENT_FIELDS if named else _FORMAT.checks, required)
    request = Request(
        request_id=fields.get("request_id", f"{source}:{line}"),
        arrival_s=fields.get("timestamp", 0) / 1000,
        prompt_tokens=fields[prompt],
        output_tokens=fields[output],
        prefix_block_ids=fields.get("hash_ids", ()),
        block_tokens=BLOCK_TOKENS,
        session_id=fields.get("session_id"),
        parent_ids=fields.get("wait_for", ()),
        delay_s=fields.get("delay"),
        model=fields.get("model"),
        priority=fields.get("priority", 0),
        status="ok" if fields[output] else "failed",
        source_line=line,
    )
    if named:
        waited_s = (request.delay_s or 0.0) + fields.get("tool_wait_ms", 0.0)
        request = replace(request, delay_s=waited_s if request.parent_ids else None)
    else:
        _require_ids(request)
    stamped = "timestamp" in fields
    whole = (stamped and "delay" not in fields) or fields.get("context_mode") == WHOLE_PROMPTS
    return Turn(request, stamped, whole, named)


def _of_agents(rows: Rows, requests: Sequence[Request]) -> list[Request]:
    """Give each request its blocks, its turn, and the earliest arrival where it waits for others.

    Rows with the name of an earlier one, or that wait for one that is not there, are bad.
    """
    by_name: dict[str, Request] = {}
    for request in requests:
        if by_name.setdefault(request.request_id, request) is not request:
            error = RowError("request_id", "duplicate", request.request_id)
            rows.reject(request.source_line or 0, error)
    parsed = [(request.source_line or 0, request) for request in by_name.values()]
    linked = without_broken_links(rows, parsed, "wait_for")
    turns, chaining, block_tokens = Counter[str | None](), Chaining(), _block_tokens(linked)
    arrivals_s = earliest_arrivals_s(linked)
    whole = []
    for request in linked:
        ids = chaining.chained(request.prefix_block_ids)
        whole.append(
            replace(
                request,
                arrival_s=arrivals_s[request.request_id],
                prefix_block_ids=ids,
                block_tokens=block_tokens if ids else None,
                turn=turns[request.session_id] if request.session_id else None,
            )
        )
        turns[request.session_id] += 1
    return whole


def _block_tokens(requests: Sequence[Request]) -> int:
    """Return the size of blocks of which every prompt has as many as it has ids."""
    counts = [(r.prompt_tokens, len(r.prefix_block_ids)) for r in requests if r.prefix_block_ids]
    fitting = (
        size for size in _AGENT_BLOCKS if all(-(-tokens // size) == ids for tokens, ids in counts)
    )
    return next(fitting, BLOCK_TOKENS)


def _require_ids(request: Request) -> None:
    """Raise RowError where the ids end before the prompt does; no ids at all are unknown ones."""
    full_blocks = request.prompt_tokens // BLOCK_TOKENS
    count = len(request.prefix_block_ids)
    if 0 < count < full_blocks and request.session_id is None:
        reason = f"wants at least {full_blocks} for {request.prompt_tokens} tokens, not {count}"
        raise RowError("hash_ids", reason, list(request.prefix_block_ids))


def _name(record: Mapping[str, Any], side: str) -> str:
    """Return this dialect's name of the length field."""
    return f"{side}_tokens" if f"{side}_tokens" in record else f"{side}_length"


def _notes(turns: Sequence[Turn], requests: Sequence[Request]) -> tuple[str, ...]:
    added = started = 0
    for turn, request in zip(turns, requests, strict=True):
        added += not turn.whole and bool(request.parent_ids)
        started += not turn.stamped and not request.parent_ids
    return (
        *([f"{counted(added, 'row')} of added tokens made whole prompts"] if added else []),
        *([f"{counted(started, 'session')} without a time started at 0"] if started else []),
    )


def _clock_s(arrivals_s: Sequence[float]) -> float | None:
    """Return the most frequent positive gap where ties are many."""
    gaps_ms = np.diff(np.sort(np.rint(np.array(arrivals_s) * 1000)))
    if len(gaps_ms) == 0 or (gaps_ms == 0).mean() <= COARSE_CLOCK_TIES or not gaps_ms.any():
        return None
    values, counts = np.unique(gaps_ms[gaps_ms > 0], return_counts=True)
    return float(values[counts.argmax()] / 1000)


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
        parent_ids=(parent.request_id,),
        turn=(parent.turn or 0) + 1,
        delay_s=delay_s,
    )


def _appended(parent: Request, request: Request, prompt_tokens: int, chaining: Chaining) -> Ids:
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
