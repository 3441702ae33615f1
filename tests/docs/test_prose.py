"""The pages are spelt right and in plain words; a slip is found where it is."""

import importlib.util
from types import ModuleType

import pytest

from tests.support.paths import ROOT


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
    found = {
        f"{page.relative_to(ROOT)}:{line}: {message}"
        for page in prose.pages()
        for line, message in prose.findings(page.read_text())
    }
    assert found == set()


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("A word.\nThe sheduler decides.", 2, "sheduler: no word, and no term of terms.txt"),
        ("Figures are those of vLLM.", 1, "those: name the things again"),
        ("The sequence who waits.", 1, "who: a thing is no person"),
        ("The tokeniser's words.", 1, "tokeniser's: the term is tokenizer"),
        ("```\nthose\n```\n\nNobody decodes.", 5, "Nobody: say what does not do it"),
        ("It is at this point in time.", 1, "Redundancy. Use 'point' instead of 'point in time'."),
    ],
)
def test_a_slip_is_found_in_its_line(prose: ModuleType, text: str, line: int, message: str) -> None:
    assert (line, message) in prose.findings(text)


@pytest.mark.parametrize(
    "text",
    [
        "For people who tune a server, the scheduler's goodput.",
        "`those` and ```those```, [a page](nobody.md), <!-- told --> https://who.example",
        "The prefill of vLLM by a roofline.",
        "",
    ],
)
def test_code_links_and_terms_are_no_slips(prose: ModuleType, text: str) -> None:
    assert prose.findings(text) == []
