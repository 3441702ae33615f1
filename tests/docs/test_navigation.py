"""The navigation is short enough to be read at every level."""

from collections.abc import Iterator
from typing import Any

import yaml

from tests.support.paths import ROOT

NAVIGATION: list[Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
DOORS = ["I have a trace", "I have a server", "I write a scheduler"]


def groups(entries: list[Any]) -> Iterator[list[Any]]:
    yield entries
    for entry in entries:
        for below in entry.values() if isinstance(entry, dict) else ():
            if isinstance(below, list):
                yield from groups(below)


def test_the_top_has_the_doors_and_at_most_seven_entries() -> None:
    top = [name for entry in NAVIGATION for name in entry]
    assert len(top) <= 7
    assert top[1:4] == DOORS


def test_no_group_is_long_or_a_single_page() -> None:
    below = [group for entry in NAVIGATION for part in entry.values() for group in groups(part)]
    assert [group for group in below if not 2 <= len(group) <= 10] == []


def test_the_landing_page_has_the_doors_one_picture_and_a_sentence() -> None:
    page = (ROOT / "docs" / "index.md").read_text()
    assert [line[3:] for line in page.splitlines() if line.startswith("## ")] == DOORS
    assert page.count("](images/") == 1
    sentence = page.split("# Servetwin\n\n")[1].split("\n\n")[0]
    assert sentence.count(". ") == 0
    assert sentence.endswith(".")
