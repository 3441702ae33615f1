"""HTML built as a tree, so that every text is escaped: nothing of a trace can become markup."""

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence

Child = ET.Element | str | None


def element(tag: str, *children: Child, **attributes: str) -> ET.Element:
    """Return an element; None children are left out. ``class_`` is class, ``aria_label`` aria-
    label."""
    made = ET.Element(tag, {k.rstrip("_").replace("_", "-"): v for k, v in attributes.items()})
    for child in children:
        if isinstance(child, ET.Element):
            made.append(child)
        elif child and len(made):
            made[-1].tail = (made[-1].tail or "") + child
        elif child:
            made.text = (made.text or "") + child
    return made


def table(
    head: Sequence[Child], rows: Iterable[Sequence[Child]], caption: str | None = None
) -> ET.Element:
    """Return a table whose first column names its rows; it scrolls where the page is narrow."""
    columns = element("tr", *(element("th", cell, scope="col") for cell in head))
    titled = element("caption", caption) if caption else None
    body = element("tbody", *(_row(cells) for cells in rows))
    made = element("table", titled, element("thead", columns), body, class_="figures")
    return element("div", made, class_="scroll")


def card(kind: str, title: str, class_: str, *said: Child) -> ET.Element:
    """Return a card: what kind of statement it is, the statement, and what belongs to it."""
    parts = [element("p", one) if isinstance(one, str) else one for one in said]
    head = [element("div", kind, class_="kind"), element("h2", title)]
    return element("div", *head, *parts, class_=f"card {class_}")


def folded(summary: str, *children: Child) -> ET.Element:
    """Return what is shown once it is asked for."""
    return element("details", element("summary", summary), *children)


def defined(word: str, definition: str) -> ET.Element:
    """Return a word whose definition is one hover, or one tab, away."""
    return element("abbr", word, title=definition, tabindex="0")


def document(head: Sequence[ET.Element], body: Sequence[ET.Element]) -> str:
    """Return a whole page."""
    page = element("html", element("head", *head), element("body", *body), lang="en")
    return "<!DOCTYPE html>\n" + ET.tostring(page, encoding="unicode", method="html") + "\n"


def _row(cells: Sequence[Child]) -> ET.Element:
    name = element("th", cells[0], scope="row")
    return element("tr", name, *(element("td", cell) for cell in cells[1:]))
