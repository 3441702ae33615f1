"""Chats in OpenAI's form: JSON Lines, or a JSON array, of ``messages``.

An assistant's message at the end is the answer, as in files for fine-tuning; without one the record
may state its output length.
"""

from servetwin.workloads import fields as check
from servetwin.workloads.readers.prompt_fields import messages, texts_of
from servetwin.workloads.readers.prompt_records import Exchange, Record, answer_of, read_records
from servetwin.workloads.rows import RowError, Rows
from servetwin.workloads.trace import Trace

FIELD = "messages"


def recognises(row: str) -> bool:
    """Return whether the first row of a file has this format."""
    return row.startswith("{") and FIELD in check.keys(row)


def read(rows: Rows) -> Trace:
    """Read a request per chat, in file order; all arrive at 0."""
    return read_records(rows, chat_prompt)


def chat_prompt(record: Record) -> Exchange:
    """Return the messages up to the last answer, and that answer."""
    if FIELD not in record:
        raise RowError(FIELD, "missing", dict(record))
    chat = messages(FIELD, record[FIELD])
    if len(chat) == 1 or chat[-1]["role"] != "assistant":
        return Exchange(chat, answer_of(record))
    return Exchange(chat[:-1], "".join(texts_of(chat[-1:])) or None)
