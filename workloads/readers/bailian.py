"""Qwen-Bailian traces (Wang et al., ATC 2025): JSON Lines, a content hash per 16 tokens, chats."""

from dataclasses import replace

from servetwin.workloads import fields as check
from servetwin.workloads.generators.parents import Chaining, rooted, without_broken_links
from servetwin.workloads.request import Request
from servetwin.workloads.rows import RowError, Rows
from servetwin.workloads.trace import Trace

BLOCK_TOKENS = 16
NO_PARENT = -1

_REQUIRED = ("chat_id", "timestamp", "input_length", "output_length")
_FIELDS: dict[str, check.Check] = {
    **dict.fromkeys(("chat_id", "output_length"), check.integer(0)),
    **dict.fromkeys(("input_length", "turn"), check.integer(1)),
    "parent_chat_id": check.integer(NO_PARENT),
    "timestamp": check.seconds,
    "type": check.text,
    "hash_ids": check.integer_list,
}


def recognises(row: str) -> bool:
    """Return whether the first row of a file has this format."""
    return row.startswith("{") and not check.keys(row).isdisjoint(("chat_id", "parent_chat_id"))


def read(rows: Rows) -> Trace:
    """Read the requests in file order, at the file's own times; their ids are chat ids.

    The published ids name the content of a block alone; here they are chained. A session is named
    by its first chat.
    """
    chaining, chat_ids = Chaining(), set[int]()

    def parse(line: int, text: str) -> tuple[int, Request]:
        fields = check.checked(check.json_object(text), _FIELDS, _REQUIRED)
        chat_id, parent = fields["chat_id"], fields.get("parent_chat_id", NO_PARENT)
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
            parent_id=None if parent == NO_PARENT else str(parent),
            turn=fields["turn"] - 1 if "turn" in fields else None,
            kind=fields.get("type"),
            status="ok" if fields["output_length"] else "failed",
            source_line=line,
        )

    chats = without_broken_links(rows, rows.parse(parse), "parent_chat_id")
    roots = rooted({chat.request_id: chat.parent_id for chat in chats})
    requests = (replace(chat, session_id=roots[chat.request_id]) for chat in chats)
    return Trace(tuple(requests), rows.source, notes=("block ids of contents chained",))
