"""Agentic coding sessions (kv-cache-tester, WEKA): one JSON file each, one id per full 64 tokens.

A request is ``t`` seconds after its session's start, measured on the original service; how long
the agent thought or its tools ran (``think_time``) holds on any server.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from servetwin.workloads import fields as check
from servetwin.workloads.files import files_in, open_text
from servetwin.workloads.generators.arrivals import check_positive
from servetwin.workloads.generators.parents import Chaining
from servetwin.workloads.request import Request
from servetwin.workloads.rows import BadRows, RowError, Rows, counted
from servetwin.workloads.trace import Trace

_SESSION_REQUIRED = ("id", "block_size", "requests")
_CONVERSATION: dict[str, check.Check] = {
    **dict.fromkeys(("tool_tokens", "system_tokens"), check.integer(0)),
    "requests": check.record_list,
}
_SESSION: dict[str, check.Check] = {
    **_CONVERSATION,
    "id": check.text,
    "block_size": check.integer(1),
    "hash_id_scope": check.one_of("local"),
}
_AGENT_REQUIRED = ("t", "requests")
_REQUEST_REQUIRED = ("t", "in", "out", "hash_ids")
_REQUEST: dict[str, check.Check] = {
    **dict.fromkeys(("t", "think_time", "api_time"), check.seconds),
    **dict.fromkeys(("model", "type"), check.text),
    "in": check.integer(1),
    "out": check.integer(0),
    "hash_ids": check.integer_list,
}
_AGENT = {**_CONVERSATION, "t": check.seconds, "duration_ms": check.seconds}


def recognises(row: str) -> bool:
    """Return whether the first row of a file has this format, on one line or on many."""
    return row == "{" or (row.startswith("{") and check.keys(row) >= {"id", "requests"})


def read(rows: Rows) -> Trace:
    """Read the requests of one session, which starts at 0."""
    return Trace(tuple(_by_arrival(_SessionReader().read(rows, 0.0))), rows.source)


def read_directory(path: Path, bad: BadRows, session_rate_per_s: float, seed: int) -> Trace:
    """Read the sessions of a directory, which start as a Poisson process; the first starts at 0.

    Raises TraceError where the directory has no ``.json`` or ``.json.gz`` file.
    """
    check_positive("session rate", session_rate_per_s)
    files = files_in(path, (".json", ".json.gz"))
    gaps_s = np.random.default_rng(seed).exponential(1 / session_rate_per_s, len(files) - 1)
    starts_s = [0.0, *gaps_s.cumsum().tolist()]
    reader = _SessionReader()
    requests: list[Request] = []
    for file, start_s in zip(files, starts_s, strict=True):
        with open_text(file) as lines:
            requests += reader.read(Rows(file, lines, bad), start_s)
    started = f"{counted(len(files), 'session')} started at {session_rate_per_s:g}/s"
    note = f"{started}, a Poisson process (seed {seed}): the files have no common clock"
    return Trace(tuple(_by_arrival(requests)), path.name, notes=(note,))


def _by_arrival(requests: Iterable[Request]) -> list[Request]:
    """Sort by arrival: sub-agents run beside their session, and sessions beside each other."""
    return sorted(requests, key=lambda request: request.arrival_s)


@dataclass
class _Conversation:
    """One agent's requests as they are read; a sub-agent's begins with its launcher as parent."""

    name: str
    start_s: float
    shared_tokens: int
    parent: Request | None = None
    parent_ended_s: float | None = None
    turns: int = 0

    def delay_s(self, arrival_s: float, think_s: float | None) -> float | None:
        if self.parent is None:
            return None
        if self.turns:
            return think_s
        return None if self.parent_ended_s is None else max(0.0, arrival_s - self.parent_ended_s)


class _SessionReader:
    """Reads files one after the other; the ids of each stand for themselves."""

    def __init__(self) -> None:
        self._chaining = Chaining()
        self._seen: set[str] = set()

    def read(self, rows: Rows, start_s: float) -> list[Request]:
        rows.peek()
        line, document = rows.whole()
        try:
            fields = check.checked(check.json_object(document), _SESSION, _SESSION_REQUIRED)
            if fields["id"] in self._seen:
                raise RowError("id", "duplicate", fields["id"])
        except RowError as error:
            rows.reject(line, error)
            return []
        self._seen.add(fields["id"])
        self._rows, self._line, self._block_tokens = rows, line, fields["block_size"]
        (self._before_first,) = self._chaining.private(1)
        session = _Conversation(fields["id"], start_s, _shared_tokens(fields))
        return list(self._requests(session, fields["requests"], "requests"))

    def _requests(
        self, conversation: _Conversation, records: Iterable[Mapping[str, Any]], place: str
    ) -> Iterator[Request]:
        """Return the valid requests, sub-agents' included; ``place`` is where ``records`` are."""
        for index, record in enumerate(records):
            here = f"{place}[{index}]"
            try:
                if "requests" in record:
                    fields = check.checked(record, _AGENT, _AGENT_REQUIRED)
                    agent = _launched(conversation, fields, index)
                    yield from self._requests(agent, fields["requests"], f"{here}.requests")
                else:
                    fields = check.checked(record, _REQUEST, _REQUEST_REQUIRED)
                    yield self._request(conversation, fields, index)
            except RowError as error:
                self._rows.reject(self._line, error.inside(here))

    def _request(
        self, conversation: _Conversation, fields: Mapping[str, Any], index: int
    ) -> Request:
        arrival_s = conversation.start_s + fields["t"]
        parent = conversation.parent
        request = Request(
            request_id=f"{conversation.name}:{index}",
            arrival_s=arrival_s,
            prompt_tokens=fields["in"],
            output_tokens=fields["out"],
            prefix_block_ids=self._chaining.chained(fields["hash_ids"], self._before_first),
            block_tokens=self._block_tokens,
            session_id=conversation.name,
            parent_id=parent.request_id if parent else None,
            turn=conversation.turns,
            delay_s=conversation.delay_s(arrival_s, fields.get("think_time")),
            shared_prefix_tokens=min(conversation.shared_tokens, fields["in"]),
            model=fields.get("model"),
            kind=fields.get("type"),
            status="ok" if fields["out"] else "failed",
        )
        conversation.parent, conversation.turns = request, conversation.turns + 1
        served_s = fields.get("api_time")
        conversation.parent_ended_s = None if served_s is None else arrival_s + served_s
        return request


def _launched(launcher: _Conversation, fields: Mapping[str, Any], index: int) -> _Conversation:
    """Return the requests of a sub-agent. Its ``t`` is the time of its report, not of its start."""
    before_s = max(0.0, fields["t"] - fields.get("duration_ms", 0.0) / 1000)
    return _Conversation(
        name=f"{launcher.name}/{index}",  # an agent may be launched again under its agent_id
        start_s=launcher.start_s + before_s,
        shared_tokens=_shared_tokens(fields),
        parent=launcher.parent,
        parent_ended_s=launcher.parent_ended_s,
    )


def _shared_tokens(fields: Mapping[str, Any]) -> int:
    """Return the tokens of tools and system prompt, which begin every prompt of an agent."""
    return int(fields.get("tool_tokens", 0) + fields.get("system_tokens", 0))
