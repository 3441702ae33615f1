"""The requests of a table: with their sessions, the prefixes that they share, and their lengths."""

import re
from collections.abc import Mapping, Sequence

from servetwin.workloads.block_ids import Ids
from servetwin.workloads.generators.chaining import ROOT, Chaining
from servetwin.workloads.readers.prompt_fields import estimated_tokens
from servetwin.workloads.request import BLOCK_TOKENS, Request
from servetwin.workloads.tables.table import TableRow

# One of the parents in a cell, which are separated by commas, semicolons or spaces.
_NAME = re.compile(r"[^\s,;\[\]\"']+")


def requests_of(source: str, rows: Sequence[TableRow]) -> list[Request]:
    """Return a request per row, failed ones included; the earliest arrives at 0.

    Texts whose tokens are not counted have about as many as ``estimated_tokens`` says.
    """
    made = _Requests(source, rows)
    return [made.of(row) for row in rows]


class _Requests:
    """Makes requests of the rows of a table, which have their ids, sessions and prefixes."""

    def __init__(self, source: str, rows: Sequence[TableRow]) -> None:
        self._source = source
        self._origin_ns = min((row.arrival_ns for row in rows), default=0)
        self._ids = _ids(source, rows)
        self._before = _before_in_session(rows)
        self._rows = {self._ids[row.line]: row for row in rows}
        self._chaining = Chaining()
        self._prefixes: dict[str, int] = {}

    def of(self, row: TableRow) -> Request:
        """Return the request of a row."""
        counts, texts = row.counts, row.texts
        prompt, answer = texts.get("prompt"), texts.get("answer")
        prompt_tokens, output_tokens = counts.get("prompt_tokens"), counts.get("output_tokens")
        if prompt_tokens is None:
            prompt_tokens = 0 if prompt is None else estimated_tokens([prompt])
        if output_tokens is None:
            output_tokens = 0 if answer is None else estimated_tokens([answer])
        before, turn = self._before.get(row.line, (None, None))
        parents = tuple(dict.fromkeys(_NAME.findall(texts.get("parent_ids", ""))))
        if before and not parents:
            parents = (self._ids[before.line],)
        block_ids = self._block_ids(row, prompt_tokens)
        return Request(
            request_id=self._ids[row.line],
            arrival_s=(row.arrival_ns - self._origin_ns) / 1e9,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            prefix_block_ids=block_ids,
            block_tokens=BLOCK_TOKENS if block_ids else None,
            session_id=texts.get("session_id"),
            parent_ids=parents,
            turn=turn,
            delay_s=_delay_s([self._rows[name] for name in parents if name in self._rows], row),
            shared_prefix_tokens=counts.get("prefix_tokens"),
            model=texts.get("model"),
            tenant=texts.get("tenant"),
            status="ok" if row.failure is None else "failed",
            source_line=row.line,
            prompt=prompt,
            answer=None if "output_tokens" in counts else answer,
        )

    def _block_ids(self, row: TableRow, prompt_tokens: int) -> Ids:
        name, shared_tokens = row.texts.get("prefix_id"), row.counts.get("prefix_tokens")
        if name is None or not shared_tokens:
            return ()
        native = self._prefixes.setdefault(name, len(self._prefixes))
        shared = min(shared_tokens, prompt_tokens) // BLOCK_TOKENS
        ids = self._chaining.chained([native] * shared)
        private = prompt_tokens // BLOCK_TOKENS - shared
        return ids + self._chaining.private(private, ids[-1] if ids else ROOT)


def _ids(source: str, rows: Sequence[TableRow]) -> dict[int, str]:
    """Return the id of the request on each line: its own, or by its line where that is taken."""
    ids: dict[int, str] = {}
    taken: set[str] = set()
    for row in rows:
        name = row.texts.get("request_id", "")
        ids[row.line] = unique = name if name and name not in taken else f"{source}:{row.line - 1}"
        taken.add(unique)
    return ids


def _before_in_session(rows: Sequence[TableRow]) -> Mapping[int, tuple[TableRow | None, int]]:
    """Return the row before each one in its session, by arrival, and its place there."""
    latest: dict[str, tuple[TableRow, int]] = {}
    before_by_line: dict[int, tuple[TableRow | None, int]] = {}
    for row in sorted(rows, key=lambda row: row.arrival_ns):
        if session := row.texts.get("session_id"):
            before, turn = latest.get(session, (None, -1))
            before_by_line[row.line] = before, turn + 1
            latest[session] = row, turn + 1
    return before_by_line


def _delay_s(parents: Sequence[TableRow], row: TableRow) -> float | None:
    """Return the time since the last of the parents had ended; None where that is not known."""
    delays_s = [
        max(0.0, (row.arrival_ns - parent.arrival_ns) / 1e9 - parent.e2e_s)
        for parent in parents
        if parent.e2e_s is not None
    ]
    return min(delays_s) if delays_s and len(delays_s) == len(parents) else None
