"""ShareGPT's conversations: a JSON array, or JSON Lines, of ``conversations`` of turns.

The first question of each conversation is the prompt, after the system's turn where there is one,
and the answer to it gives the output length.
"""

from typing import Any

from servetwin.workloads import fields as check
from servetwin.workloads.readers.prompt_records import Exchange, Record, read_records
from servetwin.workloads.rows import RowError, Rows
from servetwin.workloads.trace import Trace

FIELD = "conversations"
_CLIENT = ("human", "user")
_MODEL = ("gpt", "assistant", "chatgpt", "bing", "bard", "model")
_SYSTEM = "system"


def recognises(row: str) -> bool:
    """Return whether the first row of a file has this format."""
    return row.startswith("{") and FIELD in check.keys(row)


def read(rows: Rows) -> Trace:
    """Read the first exchange of each conversation, in file order; all arrive at 0."""
    return read_records(rows, first_exchange)


def first_exchange(record: Record) -> Exchange | None:
    """Return the first question with its answer; None where the conversation has no such pair."""
    if FIELD not in record:
        raise RowError(FIELD, "missing", dict(record))
    turns = check.record_list(FIELD, record[FIELD])
    messages = [_turn(f"{FIELD}[{index}]", turn) for index, turn in enumerate(turns)]
    before = [text for role, text in messages[:1] if role == _SYSTEM and text.strip()]
    pair = messages[len(before) :][:2]
    if len(pair) < 2:
        return None
    (asks, question), (answers, answer) = pair
    if asks not in _CLIENT or answers not in _MODEL or not (question.strip() and answer.strip()):
        return None
    return Exchange("\n\n".join([*before, question]), answer)


def _turn(place: str, turn: dict[str, Any]) -> tuple[str, str]:
    role, text = (turn.get(name) for name in ("from", "value"))
    return check.text(f"{place}.from", role), check.text(f"{place}.value", text)
