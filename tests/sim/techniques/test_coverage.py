"""The table of claims names tests that are there; every technique has a section and a test."""

import re
from pathlib import Path

import pytest

from servetwin.sim.techniques.registry import TECHNIQUES
from tests.support.evidence import rows
from tests.support.paths import DOCS, ROOT

ITEMS = {
    "1.1": 20,
    "1.2": 16,
    "1.3": 8,
    "1.4": 14,
    "1.5": 13,
}
"""Numbered items of the checklist, by section."""


TESTS = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))


def claims() -> list[tuple[str, str]]:
    return [(item.split()[0], test.strip("`")) for item, _, test in rows("claims")]


@pytest.mark.parametrize(("item", "name"), claims())
def test_what_the_table_names_is_a_test(item: str, name: str) -> None:
    assert re.search(rf"^def {re.escape(name)}\(", TESTS, re.MULTILINE), item


def test_every_item_of_the_checklist_has_a_row() -> None:
    covered = {item for item, _ in claims()}
    wanted = {f"{part}.{n}" for part, count in ITEMS.items() for n in range(1, count + 1)}
    assert wanted <= covered, sorted(wanted - covered)


@pytest.mark.parametrize("name", TECHNIQUES)
def test_the_page_of_techniques_explains_each(name: str) -> None:
    assert f"`{name}`" in (DOCS / "techniques.md").read_text()


@pytest.mark.parametrize("name", TECHNIQUES)
def test_a_technique_has_a_test_that_uses_it(name: str) -> None:
    files = sorted((ROOT / "tests" / "sim" / "techniques").glob("test_*.py"))
    tests = "\n".join(file.read_text() for file in files if file != Path(__file__))
    uses = re.findall(rf"\b{TECHNIQUES[name].__name__}\b(?!,\n)", tests)
    assert uses or f'"{name}' in tests
