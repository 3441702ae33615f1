"""A file that is one JSON array, as rows: one for each element, wherever its lines end.

Elements are cut out while the file is read, so that a large file on a single line needs no more
memory than its longest element.
"""

import json
from collections.abc import Iterable, Iterator
from io import TextIOBase
from itertools import chain

CHUNK_CHARACTERS = 1 << 20
LONGEST_ELEMENT = 1 << 25
"""Characters of an element; what is longer, or no JSON, ends the array."""
_BETWEEN = " \t\r\n,"
_DECODER = json.JSONDecoder()

NumberedRow = tuple[int, str]
"""A row and the line on which it begins, counted from 1."""


def numbered_rows(lines: Iterable[str]) -> tuple[bool, Iterator[NumberedRow]]:
    """Return whether a file is a JSON array, and its elements or else its lines."""
    if not isinstance(lines, TextIOBase):
        return False, enumerate(lines, 1)
    blank = 0
    while (start := lines.read(1)) and start.isspace():
        blank += start == "\n"
    if start == "[":
        return True, _elements(lines, blank + 1)
    rest = chain([start + next(iter(lines), "")] if start else [], lines)
    return False, enumerate(rest, blank + 1)


def _elements(lines: TextIOBase, line: int) -> Iterator[NumberedRow]:
    """Yield the elements after the opening bracket; what is no JSON is the last of them."""
    text, at, size = "", 0, CHUNK_CHARACTERS
    while True:
        begin = at
        while at < len(text) and text[at] in _BETWEEN:
            at += 1
        line += text.count("\n", begin, at)
        try:
            end = _DECODER.raw_decode(text, at)[1] if at < len(text) else at
        except (ValueError, RecursionError):
            end = at
        if end > at and end < len(text):  # a number may go on behind the text that is here
            yield line, text[at:end]
            line += text.count("\n", at, end)
            at, size = end, CHUNK_CHARACTERS
        elif len(text) - at < LONGEST_ELEMENT and (more := lines.read(size)):
            text, at, size = text[at:] + more, 0, 2 * size
        else:
            break
    if (rest := text[at:].strip()) != "]":
        yield line, rest or "[ without ]"
