"""The map of CONTRIBUTING.md has every folder of the product, and no other."""

import re

from tests.support.paths import ROOT

ROOTS = ("workloads", "policies", "sim", "engine", "loadtest", "app")
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
MAP = re.findall(r"^\| `([\w/]+)/` \| (.+) \|$", PAGE, re.MULTILINE)


def test_the_map_has_every_room_and_says_what_is_there() -> None:
    rooms = {
        f"{root}/{folder.name}"
        for root in ROOTS
        for folder in (ROOT / root).iterdir()
        if any(path.suffix == ".py" for path in folder.rglob("*.py"))
    }
    assert {room for room, _ in MAP} - {"tests"} == rooms
    assert all(len(about) > 3 for _, about in MAP)


def test_what_the_page_names_is_there() -> None:
    named = re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", PAGE)
    assert len(named) > 10
    assert [path for path in named if not (ROOT / path).exists() and "mine" not in path] == []
