"""Chats in OpenAI's form: JSON Lines, or a JSON array, of ``messages``.

An assistant's message at the end is the answer, as in files for fine-tuning; without one the record
may state its output length.
"""

from servetwin.workloads import fields as check
from servetwin.workloads.readers.prompt_fields import messages, texts_of
from servetwin.workloads.readers.prompt_records import Record, Said, answer_of, read_records
from servetwin.workloads.rows import RowError, Rows
from servetwin.workloads.trace import Trace

FIELD = "messages"


def recognises(row: str) -> bool:
    """Return whether the first row of a file has this format."""
    return row.startswith("{") and FIELD in check.keys(row)


def read(rows: Rows) -> Trace:
    """Read a request per chat, in file order; all arrive at 0."""
    return read_records(rows, chat_prompt)


def chat_prompt(record: Record) -> Said:
    """Return the messages up to the last answer, and that answer."""
    if FIELD not in record:
        raise RowError(FIELD, "missing", dict(record))
    said = messages(FIELD, record[FIELD])
    if len(said) == 1 or said[-1]["role"] != "assistant":
        return Said(said, answer_of(record))
    return Said(said[:-1], "".join(texts_of(said[-1:])) or None)
