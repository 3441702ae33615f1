"""The coverage table of the docs names tests that are there."""

import re

import pytest

from tests.support.paths import DOCS, ROOT

PAGE = DOCS / "techniques" / "coverage.md"
ITEMS = {
    "1.1": 20,
    "1.2": 16,
    "1.3": 8,
    "1.4": 14,
    "1.5": 13,
}
"""Numbered items of the checklist, by section."""

ROW = re.compile(r"^\| ([\d.]+)[^|]*\| .* \| `([^`]+)::([^`]+)` \|$")


def rows() -> list[tuple[str, str, str]]:
    lines = PAGE.read_text().splitlines()
    found = [match.groups() for line in lines if (match := ROW.match(line))]
    return [(item, file, name) for item, file, name in found]


@pytest.mark.parametrize(("item", "file", "name"), rows())
def test_what_the_table_names_is_a_test(item: str, file: str, name: str) -> None:
    assert re.search(rf"^def {re.escape(name)}\(", (ROOT / file).read_text(), re.MULTILINE), item


def test_every_item_of_the_checklist_has_a_row() -> None:
    covered = {item for item, _, _ in rows()}
    wanted = {f"{part}.{n}" for part, count in ITEMS.items() for n in range(1, count + 1)}
    assert wanted <= covered, sorted(wanted - covered)
