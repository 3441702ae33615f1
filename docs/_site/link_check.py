"""Check the links of the built site: those to our pages and anchors, and the form of all others."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_ADDRESS = re.compile(r"https?://[\w-]+(\.[\w-]+)+(:\d+)?([/?#]\S*)?")
"""What the address of a page elsewhere looks like."""
_NOT_OURS = {"404.html"}
"""Shown by servers alone; its links begin at the root of the site."""


@dataclass(slots=True)
class _Page:
    """The anchors of a page, and where its links lead."""

    anchors: set[str] = field(default_factory=set)
    links: set[str] = field(default_factory=set)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = _Page()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attrs if value}
        self.page.anchors |= {found[name] for name in ("id", "name") if name in found}
        self.page.links |= {found[name] for name in ("href", "src") if name in found}


def wrong_links(site: Path) -> Iterator[str]:
    """Yield a line for each link that leads nowhere, with the page that has it."""
    pages = {path: _read(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        if path.name not in _NOT_OURS:
            for link in sorted(page.links):
                if problem := _problem(link, path, pages):
                    yield f"{path.relative_to(site)}: {link}: {problem}"


def _read(path: Path) -> _Page:
    reader = _Reader()
    reader.feed(path.read_text())
    return reader.page


def _problem(link: str, path: Path, pages: dict[Path, _Page]) -> str | None:
    try:
        parts = urlsplit(link)
    except ValueError as error:
        return str(error)
    if parts.scheme in ("data", "javascript", "mailto"):
        return None
    if parts.scheme or parts.netloc:
        return None if _ADDRESS.fullmatch(link) else "is no address"
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.is_file():
        return "there is no such page"
    if target in pages and unquote(parts.fragment) not in {"", *pages[target].anchors}:
        return "the page has no such anchor"
    return None
