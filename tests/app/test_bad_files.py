"""Every file of every command: what cannot be read is one line, soon and in little memory.

Commands that read a file by the same code share the bad ones out: each file is given to one of
them, and each command gets several.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.bad_files import BAD_FILES, make
from tests.support.command import SERVER
from tests.support.command_tree import NOWHERE, SOME, USUAL, Parameter, of_paths
from tests.support.forked_commands import ForkedCommands, forked_commands
from tests.support.paths import SAMPLE

MOST_S, MOST_BYTES = 1.9, 300e6

pytestmark = pytest.mark.slow

WRITTEN = {"--out", "--live", "--step-log", "--truth", "--trace-export", "out", "--runs"}
"""Paths that a command writes."""
INSTEAD: dict[str, Callable[[Path], tuple[object, ...]]] = {
    "first": lambda path: (path, "run"),
    "candidates": lambda path: ("run", path),
    "runs": lambda path: (path,),
    "run": lambda path: (path, "--slowest", 1),
    "file": lambda path: (path, "--out", "imported"),
    "--recorded": lambda path: ("--recorded", path),
}
"""What is given in the place of the usual arguments."""
USABLE = {
    ("--scenario", "empty"), ("--header-file", "empty"), ("--header-file", "aliases"),
    ("--header-file", "itself"), ("--header-file", "twice"), ("--header-file", "sexagesimal"),
    ("--header-file", "tag"),
}  # fmt: skip
"""Scenarios of defaults, and lines that are headers."""
AFTER_THE_SERVER = {"--baseline", "--against"}
"""Are read when the server has answered; ``compare`` and ``report`` read the same folders."""
READ_OTHERWISE = {("workload stats", "trace")}
"""Files that a command reads by other code than the commands with the same option."""


def read_by_commands() -> list[Parameter]:
    """The paths that are read; what a dashboard offers is read when it is chosen."""
    return [
        each
        for each in of_paths()
        if each.name not in WRITTEN
        and each.command != "dashboard"
        and (each.command, each.name) not in {("loadtest", name) for name in AFTER_THE_SERVER}
    ]


def taken_by_commands(name: str) -> list[Parameter]:
    """One parameter for each way of reading a file: a bad file's turn among the commands."""
    ways: dict[tuple[str, str], list[Parameter]] = defaultdict(list)
    for each in read_by_commands():
        own = each.command if (each.command, each.name) in READ_OTHERWISE else ""
        ways[each.name, own].append(each)
    turn = list(BAD_FILES).index(name)
    return [same[turn % len(same)] for same in ways.values()]


def arguments(each: Parameter, path: Path) -> Sequence[object]:
    if each.name in INSTEAD:
        return INSTEAD[each.name](path)
    if each.name == "trace":
        return (path, *USUAL[each.command][1:])
    if (each.command, each.name) == ("loadtest", "--trace"):
        return (NOWHERE, "--trace", path)
    return (*USUAL.get(each.command, ()), each.name, *[path] * each.nargs)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("here")


@pytest.fixture(scope="module")
def forked(here: Path) -> Iterator[ForkedCommands]:
    with forked_commands(here) as commands:
        done = commands.run(("replay", SAMPLE, *SERVER, *SOME, "--replications", 0, "--out", "run"))
        assert done.code == 0, done.err
        yield commands


@pytest.fixture(scope="module")
def bad(here: Path) -> dict[str, Path]:
    (here / "bad").mkdir()
    return make(here / "bad")


def test_the_tree_has_the_files() -> None:
    assert {(each.command, each.name) for each in read_by_commands()} >= {
        ("replay", "trace"), ("loadtest", "--trace"), ("loadtest import", "file"),
        ("report", "runs"),
        ("techniques", "--scenario"), ("workload stats", "--against"),
    }  # fmt: skip


def test_every_command_has_turns_with_each_of_its_files() -> None:
    taken = {(each.command, each.name) for name in BAD_FILES for each in taken_by_commands(name)}
    assert taken == {(each.command, each.name) for each in read_by_commands()}


@pytest.mark.parametrize("name", BAD_FILES)
def test_no_command_takes_it(name: str, bad: dict[str, Path], forked: ForkedCommands) -> None:
    for each in taken_by_commands(name):
        if (each.name, name) in USABLE:
            continue
        done = forked.run((*each.words, *arguments(each, bad[name])))
        assert done.code == 2, (each, done)
        assert len(done.err.splitlines()) == 1, (each, done)
        assert done.err.startswith("servetwin: "), (each, done)
        assert done.cpu_s < MOST_S, (each, done)
        assert done.peak_bytes < MOST_BYTES, (each, done)


SAYS = {
    "pipe": "a pipe, not a file",
    "zeros": "a device, not a file",
    "folder": "a directory",
    "gzip bomb": ":1: a line of more than 33,554,432 characters",
    "long line": ":1: a line of more than 33,554,432 characters",
    "utf-16": ": text in UTF-16; save it as UTF-8",
    "cut gzip": "the gzip data are truncated or damaged",
    "empty": ":1: empty, a trace has at least one row",
}


@pytest.mark.parametrize("name", SAYS)
def test_a_bad_trace_is_named(name: str, bad: dict[str, Path], forked: ForkedCommands) -> None:
    done = forked.run(("replay", bad[name], *SERVER))
    assert f"servetwin: {bad[name]}" in done.err
    assert SAYS[name] in done.err


SCENARIOS = {
    "aliases": "line 1: more than 100,000 values",
    "itself": "line 1: a value that contains itself",
    "twice": "line 2: the key 'seed' is there twice",
    "sexagesimal": "line 1: 1:30:00 would be a number to the base of 60",
    "tag": "line 1: the tag tag:yaml.org,2002:python/object/apply:os.system",
    "deep": "line 1: more than 50 levels",
    "beyond a float": "unknown key",
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_bad_scenario_is_named(name: str, bad: dict[str, Path], forked: ForkedCommands) -> None:
    done = forked.run(("replay", "--scenario", bad[name]))
    assert f"servetwin: {bad[name]}: " in done.err
    assert SCENARIOS[name] in done.err


TRACES = {
    '{"timestamp": 0, "input_length": 1600, "output_length": 5, "hash_ids": [0]}\n': (
        ":1: field 'hash_ids': wants at least 3 for 1600 tokens, not 1 ([0])"
    ),
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374\n": (
        ":2: field 'GeneratedTokens': the row has 2 cells where the header has 3"
    ),
    "TIMESTAMP,ContextTokens,GeneratedTokens\n": ":1: no requests",
    "": ":1: empty, a trace has at least one row",
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,1e309,1\n": (
        ":2: field 'ContextTokens': not an integer"
    ),
}


@pytest.mark.parametrize("text", TRACES)
def test_a_bad_row_names_its_column(text: str, tmp_path: Path, forked: ForkedCommands) -> None:
    (tmp_path / "t").write_text(text)
    done = forked.run(("replay", tmp_path / "t", *SERVER))
    assert done.code == 2
    assert done.err.startswith(f"servetwin: {tmp_path / 't'}{TRACES[text]}")
