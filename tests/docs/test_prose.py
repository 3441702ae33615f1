"""The pages are spelt right and in plain words; a slip is found where it is."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.paths import DOCS, ROOT

WITHOUT = ("README.md", "glossary.md", "third-party-licences.md")
"""Pages that list, and need no command."""
WITH_COMMANDS = [p for p in sorted(DOCS.rglob("*.md")) if p.name not in WITHOUT]
NO_WORDS = re.compile(r"\A---[\s\S]*?^---$|<!--.*?-->|^#.*$|!\[.*?\]\(.*?\)|<.*?>", re.MULTILINE)


@pytest.fixture(scope="module")
def prose() -> ModuleType:
    place = ROOT / "docs" / "_site" / "prose.py"
    spec = importlib.util.spec_from_file_location("prose", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_in_plain_words_and_spelt_right(prose: ModuleType) -> None:
    slips = {
        f"{page.relative_to(ROOT)}:{line}: {message}"
        for page in prose.pages()
        for line, message in prose.findings(page.read_text())
    }
    assert slips == set()


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("A word.\nThe sheduler decides.", 2, "sheduler: no word, and no term of terms.txt"),
        ("Repeat it so many times.", 1, "so many: name the thing, or the number"),
        ("The tokeniser's words.", 1, "tokeniser's: the term is tokenizer"),
        ("```\nof which\n```\n\nIt is said.", 5, "It is said: name the thing, or the number"),
        ("It is at this point in time.", 1, "Redundancy. Use 'point' instead of 'point in time'."),
    ],
)
def test_a_slip_is_found_in_its_line(prose: ModuleType, text: str, line: int, message: str) -> None:
    assert (line, message) in prose.findings(text)


@pytest.mark.parametrize(
    "text",
    [
        "For people who tune a server, the scheduler's goodput.",
        "Those who wait, said nobody. `so many`, [a page](of-which.md), <!-- of which -->",
        "The prefill of vLLM by a roofline.",
        "",
    ],
)
def test_code_links_and_terms_are_no_slips(prose: ModuleType, text: str) -> None:
    assert prose.findings(text) == []


@pytest.mark.parametrize("page", [ROOT / "README.md", *WITH_COMMANDS], ids=lambda page: page.stem)
def test_the_first_command_comes_within_fifty_words(page: Path) -> None:
    text = NO_WORDS.sub("", page.read_text())
    before, fence, _ = text.partition("\n```")
    assert fence
    assert len(before.split()) <= 50
