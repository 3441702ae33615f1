"""A table, made once for a terminal and for a page."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import wrap

# Characters of a line.
WIDTH = 100


@dataclass(frozen=True, slots=True)
class Cell:
    """A text; on a page with its definition one hover away, or with a colour or a class."""

    text: str
    definition: str = ""
    colour: str = ""
    css: str = ""

    def __str__(self) -> str:
        return self.text


Content = Cell | str


@dataclass(frozen=True, slots=True)
class Table:
    """Headings and rows; the first cell of a row names it. The caption explains the columns."""

    heads: Sequence[Content]
    rows: Sequence[Sequence[Content]]
    caption: str = ""


def table_lines(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    align: str = "<>",
    indent: str = "",
    gap: str = "  ",
) -> list[str]:
    """Return heads and rows in columns that are as wide as they need, ``gap`` between them.

    ``align`` has ``<`` or ``>`` per column; its last one is that of all further columns.
    """
    texts = [heads, *rows]
    sides = align.ljust(len(heads), align[-1])[: len(heads)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    lines = (zip(row, sides, widths, strict=True) for row in texts)
    return [
        indent + gap.join(f"{text:{side}{width}}" for text, side, width in line).rstrip()
        for line in lines
    ]


def wrapped(paragraphs: Iterable[str], indent: str = "", width: int = WIDTH) -> list[str]:
    """Return paragraphs as lines of at most ``width`` characters."""
    return [line for text in paragraphs for line in wrap(text, width, subsequent_indent=indent)]
