"""The published JSON Lines formats that name the content of prompts: by hashes, or token by token.

Ids of contents recur under different prefixes; here they are chained.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from servetwin.workloads import fields as check
from servetwin.workloads.block_ids import Ids
from servetwin.workloads.generators.chaining import ROOT, Chaining
from servetwin.workloads.graphs.links import links_of, tasks, without_broken_links
from servetwin.workloads.request import BLOCK_TOKENS, Request
from servetwin.workloads.rows import RowError, Rows
from servetwin.workloads.trace import Trace


class Bailian:
    """Qwen-Bailian traces (Wang et al., ATC 2025): a content hash per 16 tokens, chats."""

    NO_PARENT = -1
    FORMAT = check.RecordFormat.of("bailian")
    recognises = staticmethod(FORMAT.recognises)

    def read(self, rows: Rows) -> Trace:
        """Read the requests in file order, at the file's own times; their ids are chat ids.

        A session is named by its first chat.
        """
        chaining, chat_ids = Chaining(), set[int]()

        def parse(line: int, text: str) -> tuple[int, Request]:
            fields = self.FORMAT.checked(check.json_object(text))
            chat_id, parent = fields["chat_id"], fields.get("parent_chat_id", self.NO_PARENT)
            if chat_id in chat_ids:
                raise RowError("chat_id", "duplicate", chat_id)
            chat_ids.add(chat_id)
            return line, Request(
                request_id=str(chat_id),
                arrival_s=fields["timestamp"],
                prompt_tokens=fields["input_length"],
                output_tokens=fields["output_length"],
                prefix_block_ids=chaining.chained(fields.get("hash_ids", ())),
                block_tokens=BLOCK_TOKENS,
                parent_ids=() if parent == self.NO_PARENT else (str(parent),),
                turn=fields["turn"] - 1 if "turn" in fields else None,
                kind=fields.get("type"),
                status="ok" if fields["output_length"] else "failed",
                source_line=line,
            )

        chats = without_broken_links(rows, rows.parse(parse), "parent_chat_id")
        roots = tasks(links_of(chats))
        requests = (replace(chat, session_id=roots[chat.request_id]) for chat in chats)
        return Trace(tuple(requests), rows.source, notes=("block ids of contents chained",))


class LLMServingSim:
    """LLMServingSim's workloads: requests and sessions of agents, perhaps with all token ids."""

    FORMAT = check.RecordFormat.of("llmservingsim")
    recognises = staticmethod(FORMAT.recognises)

    def read(self, rows: Rows) -> Trace:
        """Read the requests in file order, at the file's own times.

        A call of a session follows the one before it when its tool is done; without a time of its
        own it arrives as if that call took no time. Prompts share the blocks of equal token ids.
        """
        tokens = _TokenBlocks()

        def parse(line: int, text: str) -> list[Request]:
            return list(self._requests(rows.source, line, check.json_object(text), tokens))

        return Trace(tuple(chain.from_iterable(rows.parse(parse))), rows.source)

    def _requests(
        self, source: str, line: int, record: dict[str, Any], tokens: "_TokenBlocks"
    ) -> Iterator[Request]:
        calls = record.pop("sub_requests", None)
        if calls is None:
            yield self._request(f"{source}:{line}", line, record, tokens)
            return
        if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
            raise RowError("sub_requests", "not a list of objects", calls)
        session = check.text("session_id", record.get("session_id"))
        arrival_s = check.nanoseconds("arrival_time_ns", record.get("arrival_time_ns"))
        before: dict[str, Any] = {"parent_ids": (), "delay_s": None}
        for turn, call in enumerate(calls):
            name = f"{session}:{turn}"
            try:
                done_s = check.nanoseconds("tool_duration_ns", call.get("tool_duration_ns", 0))
                request = self._request(name, line, {"arrival_time_ns": 0, **call}, tokens)
            except RowError as error:
                raise error.inside(f"sub_requests[{turn}]") from None
            arrival_s = max(request.arrival_s, arrival_s + (before["delay_s"] or 0.0))
            yield replace(request, session_id=session, turn=turn, arrival_s=arrival_s, **before)
            before = {"parent_ids": (name,), "delay_s": done_s}

    def _request(
        self, name: str, line: int, record: dict[str, Any], tokens: "_TokenBlocks"
    ) -> Request:
        fields = self.FORMAT.checked(record)
        prompt, output = fields["input_toks"], fields["output_toks"]
        ids, answer = fields.get("input_tok_ids", ()), fields.get("output_tok_ids", ())
        if len(ids) > prompt:
            raise RowError("input_tok_ids", f"{len(ids)} ids of {prompt} tokens", list(ids[:8]))
        prefix = tokens.named(ids)
        answered: Ids = ()
        if len(ids) == prompt:
            answered = tokens.named((*ids, *answer[:output]))[len(prefix) :]
        return Request(
            request_id=name,
            arrival_s=fields["arrival_time_ns"],
            prompt_tokens=prompt,
            output_tokens=output,
            prefix_block_ids=prefix,
            block_tokens=BLOCK_TOKENS if prefix else None,
            answer_block_ids=answered if prefix else (),
            status="ok" if output else "failed",
            source_line=line,
        )


class _TokenBlocks:
    """Chained ids of the full blocks of token ids."""

    def __init__(self) -> None:
        self._chaining = Chaining()
        self._contents: dict[tuple[int, ...], int] = {}

    def named(self, ids: Sequence[int]) -> Ids:
        """Return one id for each full block."""
        contents = self._contents
        blocks = (
            tuple(ids[end - BLOCK_TOKENS : end])
            for end in range(BLOCK_TOKENS, len(ids) + 1, BLOCK_TOKENS)
        )
        native = [contents.setdefault(block, len(contents)) for block in blocks]
        return self._chaining.chained(native, ROOT)
