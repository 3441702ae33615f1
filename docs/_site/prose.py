"""Check the prose of the pages (``make docs``): spelling, plain words, and proselint.

Code, tables of figures, links and comments are left out. Terms of the field and names are in
``terms.txt``: a word that neither a dictionary nor this list has is a mistake, or a new term.

    python docs/_site/prose.py [PAGE ...]
"""

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from proselint.checks import __register__
from proselint.config import DEFAULT
from proselint.registry import CheckRegistry
from proselint.tools import LintFile
from spellchecker import SpellChecker

ROOT = Path(__file__).parents[2]
TERMS = Path(__file__).with_name("terms.txt")
Finding = tuple[int, str]
"""Line, and what is wrong there."""

_NO_PROSE = (
    re.compile(r"\A---$.*?^---$", re.DOTALL | re.MULTILINE),  # settings of the page
    re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE),
    re.compile(r"<!--.*?-->", re.DOTALL),
    re.compile(r"`[^`]*`"),
    re.compile(r"\]\([^)]*\)"),
    re.compile(r"https?://\S+"),
    re.compile(r"<[^>\n]+>"),
    re.compile(r"least absolute|early-exit"),  # terms that proselint takes for slips
)
_WORD = re.compile(r"[A-Za-z][a-z']+")
_PLAIN = {
    r"tokeni[sz]er's|tokeniser": "the term is tokenizer",
    r"of which|so many|it is said": "name the thing, or the number",
}
"""Words that the pages do without, as regular expressions, and what to write."""
_OFF = ("typography", "weasel_words", "lexical_illusions", "dates_times", "industrial_language")
"""Checks of proselint that are matters of taste, or that formulas and figures set off."""


def findings(text: str) -> list[Finding]:
    """Return what is wrong with the prose of a page, by line."""
    prose = _prose(text)
    return sorted({*_misspelt(prose), *_not_plain(prose), *_proselint(prose)})


def _prose(text: str) -> str:
    """Return the text with blanks for all that is no prose; lines stay where they are."""
    for pattern in _NO_PROSE:
        text = pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
    return text


def _misspelt(prose: str) -> Iterator[Finding]:
    dictionary, terms = _dictionary()
    for number, line in enumerate(prose.splitlines(), 1):
        for word in _WORD.findall(line):
            plain = word.strip("'").removesuffix("'s").lower()
            if len(plain) > 2 and plain not in terms and plain not in dictionary:
                yield number, f"{word}: no word, and no term of {TERMS.name}"


def _not_plain(prose: str) -> Iterator[Finding]:
    for number, line in enumerate(prose.splitlines(), 1):
        for word, advice in _PLAIN.items():
            for match in re.findall(rf"\b(?:{word})\b", line, re.IGNORECASE):
                yield number, f"{match}: {advice}"


def _proselint(prose: str) -> Iterator[Finding]:
    tables_out = re.sub(r"^\|.*$", "", prose, flags=re.MULTILINE)
    if not tables_out.strip():
        return
    _register()
    for result in LintFile("page", tables_out).lint(DEFAULT):
        check = result.check_result
        if not check.check_path.startswith(_OFF):
            yield result.pos[0], check.message


@cache
def _dictionary() -> tuple[SpellChecker, frozenset[str]]:
    lines = TERMS.read_text().splitlines()
    words = " ".join(line for line in lines if not line.startswith("#"))
    return SpellChecker(), frozenset(words.split())


@cache
def _register() -> None:
    CheckRegistry().register_many(__register__)


def pages() -> list[Path]:
    """Return the README and every page of the documentation that is written by hand."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def main(names: list[str]) -> None:
    """Print the findings; exit with 1 where there are some."""
    failed = False
    for page in map(Path, names) if names else pages():
        for line, message in findings(page.read_text()):
            failed = True
            print(f"{page.resolve().relative_to(ROOT)}:{line}: {message}")  # noqa: T201
    sys.exit(int(failed))


if __name__ == "__main__":
    main(sys.argv[1:])
