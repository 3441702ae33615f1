"""Lead from the first use of a term on a page to the glossary."""

import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

_GLOSSARY = Path(__file__).parents[1] / "glossary.md"
_NO_PROSE = {"a", "button", "code", "pre", "script", "style", "svg", "th"}
_NO_PROSE |= {f"h{level}" for level in range(1, 7)}
"""Elements whose words are no prose, or lead somewhere already."""


@cache
def terms() -> dict[str, str]:
    """Return the forms of every term, in small letters, with the anchor of its entry.

    ``## TTFT (time to first token)`` has two forms.
    """
    found = dict[str, str]()
    for heading in re.findall(r"^## (.+)$", _GLOSSARY.read_text(), re.MULTILINE):
        for form in re.split(r" \(|\)", heading):
            if form:
                found[form.lower()] = "-".join(re.findall(r"[\w-]+", heading.lower()))
    return found


@cache
def _spellings() -> dict[str, str]:
    """Return every form in the singular and the plural, with its anchor."""
    spellings = dict[str, str]()
    for form, anchor in terms().items():
        plurals = [form[:-1] + "ies"] if form.endswith("y") else [form + "s", form + "es"]
        spellings |= dict.fromkeys([form, *plurals], anchor)
    return spellings


@cache
def _form() -> re.Pattern[str]:
    """Return what finds a form as a whole word, the longest first."""
    longest_first = sorted(map(re.escape, _spellings()), key=len, reverse=True)
    words = "|".join(longest_first).replace(r"\ ", r"\s+")
    return re.compile(rf"(?<![\w-])(?:{words})(?![\w-])", re.IGNORECASE)


def with_links(html: str, glossary: str) -> str:
    """Return a page whose first use of each term leads to ``glossary``, the address of the page."""
    linker = _Linker(glossary)
    linker.feed(html)
    linker.close()
    return "".join(linker.parts)


class _Linker(HTMLParser):
    """Repeats a page, with links in its prose."""

    def __init__(self, glossary: str) -> None:
        super().__init__(convert_charrefs=False)
        self.parts: list[str] = []
        self._glossary = glossary
        self._seen = set[str]()
        self._no_prose = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Repeat a tag."""
        self._no_prose += tag in _NO_PROSE
        self.parts.append(self.get_starttag_text() or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Repeat an element without contents."""
        self.parts.append(self.get_starttag_text() or "")

    def handle_endtag(self, tag: str) -> None:
        """Repeat the end of an element."""
        self._no_prose -= tag in _NO_PROSE
        self.parts.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        """Repeat words, with links where they are prose."""
        self.parts.append(data if self._no_prose else _form().sub(self._link, data))

    def handle_entityref(self, name: str) -> None:
        """Repeat a character that is named."""
        self.parts.append(f"&{name};")

    def handle_charref(self, name: str) -> None:
        """Repeat a character that is numbered."""
        self.parts.append(f"&#{name};")

    def handle_comment(self, data: str) -> None:
        """Repeat a comment."""
        self.parts.append(f"<!--{data}-->")

    def _link(self, found: re.Match[str]) -> str:
        anchor = _spellings()[" ".join(found[0].lower().split())]
        if anchor in self._seen:
            return found[0]
        self._seen.add(anchor)
        return f'<a class="term" href="{self._glossary}#{anchor}">{found[0]}</a>'
