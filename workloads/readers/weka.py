"""Agentic coding sessions (kv-cache-tester, WEKA): one JSON file each, one id per full 64 tokens.

A request is ``t`` seconds after its session's start, measured on the original service; how long
the agent thought or its tools ran (``think_time``) holds on any server. Sub-agents are nested, or
lie flat among the requests of their launcher, which they overlap; those that had ended before a
turn of the launcher began are waited for, the others run in the background.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from servetwin.workloads import fields as check
from servetwin.workloads.files import files_in, open_text
from servetwin.workloads.generators.arrivals import check_positive
from servetwin.workloads.generators.chaining import Chaining, shared_length
from servetwin.workloads.request import Request
from servetwin.workloads.rows import BadRows, RowError, Rows, counted
from servetwin.workloads.trace import Trace

_SESSION, _AGENT, _REQUEST = map(check.RecordFormat.of, ("weka", "weka agent", "weka request"))


def recognises(row: str) -> bool:
    """Return whether the first row of a file has this format, on one line or on many."""
    return row == "{" or _SESSION.recognises(row)


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


# An answer and the request after it may overlap by this much in a recording.
_CLOCK_S = 0.01


@dataclass(frozen=True, slots=True)
class _Turn:
    """A request, when its answer was complete, and how long its agent thought before it."""

    request: Request
    ended_s: float | None
    think_s: float | None

    @property
    def over_s(self) -> float:
        """When the turn was over, at the earliest."""
        return self.request.arrival_s if self.ended_s is None else self.ended_s


@dataclass
class _Agent:
    """One agent's turns in their order, and the agents that it launched."""

    name: str
    start_s: float
    shared_tokens: int
    turns: list[_Turn] = field(default_factory=list)
    launched: list["_Agent"] = field(default_factory=list)
    flat: bool = False
    """Whether its turns lie among those of its launcher."""

    def add(self, turn: _Turn) -> None:
        """Add a turn, to a flat sub-agent where this agent had not answered the one before it.

        Of several that had, it goes to the one with the longest common prefix.
        """
        flat = [agent for agent in self.launched if agent.flat]
        agents = [agent for agent in (self, *flat) if agent.is_free(turn.request.arrival_s)]
        if not agents:
            name = f"{self.name}/{turn.request.request_id.rpartition(':')[2]}"
            agents = [_Agent(name, self.start_s, self.shared_tokens, flat=True)]
            self.launched += agents
        max(agents, key=lambda agent: agent.shared_blocks(turn.request)).turns.append(turn)

    def is_free(self, at_s: float) -> bool:
        return not self.turns or self.turns[-1].over_s <= at_s + _CLOCK_S

    def shared_blocks(self, request: Request) -> int:
        before = self.turns[-1].request.prefix_block_ids if self.turns else ()
        return shared_length(before, request.prefix_block_ids)

    def requests(self, launcher: _Turn | None = None) -> Iterator[Request]:
        """Yield the requests, those of launched agents included, with what they wait for."""
        waits: list[list[_Turn]] = [[] for _ in self.turns]
        for agent in filter(lambda agent: agent.turns, self.launched):
            begun_s, over_s = agent.turns[0].request.arrival_s, agent.turns[-1].over_s
            before = [n for n, turn in enumerate(self.turns) if turn.over_s <= begun_s + _CLOCK_S]
            yield from agent.requests(self.turns[before[-1]] if before else launcher)
            after = (n for n, turn in enumerate(self.turns) if turn.request.arrival_s >= over_s)
            if (place := next(after, None)) is not None:
                waits[place].append(agent.turns[-1])
        before_it = launcher
        for place, turn in enumerate(self.turns):
            parents = [*([before_it] if before_it else []), *waits[place]]
            alone = place > 0 and not waits[place]
            yield replace(
                turn.request,
                session_id=self.name,
                parent_ids=tuple(parent.request.request_id for parent in parents),
                turn=place,
                delay_s=turn.think_s if alone else _delay_s(parents, turn.request.arrival_s),
            )
            before_it = turn


def _delay_s(parents: Sequence[_Turn], arrival_s: float) -> float | None:
    """Return the time since the last of the parents had ended; None where that is not known."""
    ends_s = [parent.ended_s for parent in parents if parent.ended_s is not None]
    return max(0.0, arrival_s - max(ends_s)) if parents and len(ends_s) == len(parents) else None


class _SessionReader:
    """Reads files one after the other; the ids of each stand for themselves."""

    def __init__(self) -> None:
        self._chaining = Chaining()
        self._seen: set[str] = set()

    def read(self, rows: Rows, start_s: float) -> list[Request]:
        rows.peek()
        line, document = rows.whole()
        try:
            fields = _SESSION.checked(check.json_object(document))
            if fields["id"] in self._seen:
                raise RowError("id", "duplicate", fields["id"])
        except RowError as error:
            rows.reject(line, error)
            return []
        self._seen.add(fields["id"])
        self._rows, self._line, self._block_tokens = rows, line, fields["block_size"]
        (self._before_first,) = self._chaining.private(1)
        session = _Agent(fields["id"], start_s, _shared_tokens(fields))
        self._fill(session, fields["requests"], "requests")
        return list(session.requests())

    def _fill(self, agent: _Agent, records: Iterable[Mapping[str, Any]], place: str) -> None:
        """Add the valid turns, and sub-agents with theirs; ``place`` is where ``records`` are."""
        for index, record in enumerate(records):
            here = f"{place}[{index}]"
            try:
                if "requests" in record:
                    fields = _AGENT.checked(record)
                    agent.launched.append(launched := _launched(agent, fields, index))
                    self._fill(launched, fields["requests"], f"{here}.requests")
                else:
                    fields = _REQUEST.checked(record)
                    agent.add(self._turn(agent, fields, index))
            except RowError as error:
                self._rows.reject(self._line, error.inside(here))

    def _turn(self, agent: _Agent, fields: Mapping[str, Any], index: int) -> _Turn:
        arrival_s, served_s = agent.start_s + fields["t"], fields.get("api_time")
        request = Request(
            request_id=f"{agent.name}:{index}",
            arrival_s=arrival_s,
            prompt_tokens=fields["in"],
            output_tokens=fields["out"],
            prefix_block_ids=self._chaining.chained(fields["hash_ids"], self._before_first),
            block_tokens=self._block_tokens,
            shared_prefix_tokens=min(agent.shared_tokens, fields["in"]),
            model=fields.get("model"),
            kind=fields.get("type"),
            status="ok" if fields["out"] else "failed",
        )
        ended_s = None if served_s is None else arrival_s + served_s
        return _Turn(request, ended_s, fields.get("think_time"))


def _launched(launcher: _Agent, fields: Mapping[str, Any], index: int) -> _Agent:
    """Return a sub-agent. Its ``t`` is the time of its report, not of its start."""
    before_s = max(0.0, fields["t"] - fields.get("duration_ms", 0.0) / 1000)
    return _Agent(
        name=f"{launcher.name}/{index}",  # an agent may be launched again under its agent_id
        start_s=launcher.start_s + before_s,
        shared_tokens=_shared_tokens(fields),
    )


def _shared_tokens(fields: Mapping[str, Any]) -> int:
    """Return the tokens of tools and system prompt, which begin every prompt of an agent."""
    return int(fields.get("tool_tokens", 0) + fields.get("system_tokens", 0))
