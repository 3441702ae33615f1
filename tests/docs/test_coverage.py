"""docs/techniques/coverage.md: every command is one, every name is there, nothing by name alone."""

import re
import shlex
from itertools import pairwise

import pytest

from servetwin.loadtest.dialects.registry import DIALECTS
from servetwin.policies.presets import PRESETS, find_preset
from servetwin.sim.published.tables import TABLES
from servetwin.sim.techniques.registry import TECHNIQUES, find_technique
from servetwin.workloads.scenarios.named import NAMED, find_named
from tests.docs.test_examples import parse
from tests.support.paths import DOCS

PAGE = (DOCS / "techniques" / "coverage.md").read_text()
ABOUT, BY_ITEM = PAGE.split("## Tests by item")
COMMANDS = sorted(set(re.findall(r"`(servetwin [^`]+)`", ABOUT)))


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading."""
    (found,) = re.findall(
        rf"^## {heading}\n(?:[^#|].*\n|\n)*\|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.M
    )
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in found.splitlines()]


def values(option: str) -> list[str]:
    """What the commands of the page give to an option."""
    words = [shlex.split(command) for command in COMMANDS]
    return [after for line in words for word, after in pairwise(line) if word == option]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_one_that_the_command_line_takes(command: str) -> None:
    parse(command)


def test_names_in_commands_are_those_of_something() -> None:
    assert set(values("--dialect")) <= set(DIALECTS)
    for name in values("--preset"):
        find_preset(name)
    for name in (*values("--only"), *values("--technique")):
        find_technique(name)
    assert [find_named(name) for name in values("--named")] == list(map(find_named, sorted(NAMED)))


def test_every_table_of_the_notes_prints_some_claim() -> None:
    assert set(values("table")) == {"effects", *TABLES}


def test_every_system_is_simulated_and_can_be_load_tested() -> None:
    found = {row[0].strip("`"): row[1:] for row in rows("Systems")}
    assert set(found) == set(PRESETS)
    for name, (simulated, run, tested) in found.items():
        assert simulated == f"`servetwin replay trace.jsonl --preset {name}`"
        assert run
        assert "--dialect" in tested
    served = {name for name, cells in found.items() if cells[1].startswith("`servetwin serve")}
    assert served == {name for name, preset in PRESETS.items() if not preset.cluster}


def test_every_technique_is_printed_by_a_command() -> None:
    found = {row[0].strip("`"): row[1:] for row in rows("Techniques")}
    assert set(found) == set(TECHNIQUES)
    for name, (page, printed, run) in found.items():
        family = TECHNIQUES[name].family
        assert page == f"[{family}]({family}.md)"
        assert printed == f"`servetwin techniques --only {name}`"
        assert run


def test_nothing_is_there_in_name_only() -> None:
    assert "in name only" not in PAGE.lower()
    claims = rows("Claims")
    assert all(len(cells) == 3 and cells[2].startswith("`servetwin ") for cells in claims)


def test_every_item_that_has_a_test_has_a_command() -> None:
    claimed = {cells[0] for cells in rows("Claims")}
    tested = set(re.findall(r"^\| (\d\.\d+(?:\.\d+)?)[ |]", BY_ITEM, re.MULTILINE))
    assert tested <= claimed
    assert {item for item in claimed if item.count(".") == 2} <= tested
