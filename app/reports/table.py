"""A table, made once for a terminal and for a page."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


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

    def lines(self, align: str = "<>", indent: str = "") -> list[str]:
        """Return the table as text (``table_lines``), the caption below it."""
        return [*table_lines(self.heads, self.rows, align, indent), *filter(None, [self.caption])]


def table_lines(
    heads: Sequence[Content], rows: Iterable[Sequence[Content]], align: str = "<>", indent: str = ""
) -> list[str]:
    """Return heads and rows in columns that are as wide as they need.

    ``align`` has ``<`` or ``>`` per column; its last one is that of all further columns.
    """
    texts = [[*map(str, row)] for row in (heads, *rows)]
    sides = align.ljust(len(heads), align[-1])[: len(heads)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return [
        indent
        + "  ".join(
            f"{text:{side}{width}}" for text, side, width in zip(row, sides, widths, strict=True)
        ).rstrip()
        for row in texts
    ]
