"""The commands and the Python of README and docs run, page by page, from top to bottom.

A block that cannot run here is preceded by ``<!-- skip: next "reason" -->``; its command lines are
still ones that the command line takes. What is shown right below a command is what it prints, as
far as the words before the first figure of each line.
"""

import contextlib
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import SkipTest

import pytest
from sybil import Document, Example
from sybil.parsers.abstract.codeblock import AbstractCodeBlockParser
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser
from typer.main import get_command

from servetwin.app.cli import app
from servetwin.workloads.readers.native import write_trace
from servetwin.workloads.reading import sample_trace
from tests.support.effort import FULL
from tests.support.page_shell import PageShell, command_lines
from tests.support.paths import ROOT

PAGES = {
    path.relative_to(ROOT).as_posix(): path
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
}
AS_WRITTEN = ("README.md", "docs/tutorial.md") if FULL else ("README.md",)
"""What a newcomer copies runs as it stands; outside CI the tutorial takes fewer replications."""
UNLABELLED = r"^```\n((?:servetwin .*\n|  .*\n)+)```$"
RUN_UNLABELLED = ("replay", "explain", "workload", "techniques")
"""Of the commands in blocks without a language, those that need no server and no minutes."""
COMMANDS: Any = get_command(app)


def blocks(text: str) -> list[str]:
    """The blocks of commands of a page, labelled or not."""
    labelled = re.findall(r"^```bash\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [*labelled, *re.findall(UNLABELLED, text, re.MULTILINE)]


LINES = [
    (page, line)
    for page, path in PAGES.items()
    for block in blocks(path.read_text())
    for line in command_lines(block)
    if line.startswith("servetwin ")
]


def parse(line: str) -> Any:
    """Let the command that a line names take its arguments, run nothing, and return the command."""
    command, arguments = COMMANDS, shlex.split(line, comments=True)[1:]
    if arguments and not arguments[0].startswith("-"):
        context = command.make_context("servetwin", [arguments[0]])
        _, command, arguments = command.resolve_command(context, arguments)
    command.make_context(line, arguments)
    return command


@pytest.mark.parametrize(("page", "line"), LINES)
def test_every_command_line_is_one_that_the_command_line_takes(page: str, line: str) -> None:
    """Parsing raises where it does not."""
    parse(line)


def test_the_pages_have_commands_and_parsing_finds_what_is_wrong() -> None:
    assert len(LINES) > 80
    with pytest.raises(Exception, match="No such command 'replai'"):
        parse("servetwin replai trace.jsonl")
    with pytest.raises(Exception, match="No such option: --blocktokens"):
        parse("servetwin replay trace.jsonl --blocktokens 16")


@pytest.mark.parametrize("page", PAGES)
def test_what_does_not_run_says_why(page: str) -> None:
    text = PAGES[page].read_text()
    assert text.count("<!-- skip") == len(re.findall(r'^<!-- skip: next "[^"]+" -->$', text, re.M))


class Transcript:
    """Evaluates the blocks of one page, and compares what is shown with what was printed."""

    def __init__(self, shell: PageShell) -> None:
        self._shell = shell
        self._printed: str | None = None
        self._end = 0

    def run_commands(self, example: Example) -> None:
        self._printed = self._shell.run(str(example.parsed))
        self._end = example.region.end

    def check_shown(self, example: Example) -> None:
        """A block of text right below a block that ran."""
        printed, self._printed = self._printed, None
        between = example.document.text[self._end : example.region.start]
        if printed is not None and not between.strip():
            lines = [" ".join(line.split()) for line in printed.splitlines()]
            for label in labels(example.parsed):
                assert any(label in line for line in lines), f"{label!r} not in {printed}"


def labels(shown: str) -> set[str]:
    """What stands before the first figure of each line; lines of dots stand for others."""
    starts = (re.split(r"[-+]?\d", line)[0].split() for line in shown.splitlines())
    return {" ".join(words) for words in starts} - {"", "..."}


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where pages run: ``trace.jsonl`` is the sample, ``clients`` has the windows of one client."""
    write_trace(sample_trace(), tmp_path / "trace.jsonl")
    clients = tmp_path / "clients"
    clients.mkdir()
    (clients / "chunk-0-trace.csv").write_text("0,0.2,1.0,Gamma,1.0,5.0\n")
    lengths = {"0": {"input_tokens": "{100: 1.0}", "output_tokens": "{10: 1.0}"}}
    (clients / "chunk-0-dataset.json").write_text(json.dumps(lengths))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


def parsers(transcript: Transcript) -> Iterator[AbstractCodeBlockParser | Any]:
    yield SkipParser()
    yield PythonCodeBlockParser()
    yield CodeBlockParser("bash", transcript.run_commands)
    yield CodeBlockParser("text", transcript.check_shown)


def run_page(path: Path, workplace: Path, *, as_written: bool = False) -> int:
    """Run a page and compare what it shows; return how many of its blocks ran."""
    ran = 0
    if "generate --out trace.jsonl" in path.read_text():  # The page makes its own.
        (workplace / "trace.jsonl").unlink()
    with PageShell(workplace, as_written=as_written) as shell:
        document = Document.parse(str(path), *parsers(Transcript(shell)))
        for example in document.examples():
            with contextlib.suppress(SkipTest):
                example.evaluate()
                ran += 1
    return ran


QUICK = ("README.md", "docs/explain.md", "docs/guides/own-trace.md", "docs/index.md")
"""The pages that run within two seconds."""


def with_examples() -> list[Any]:
    found = re.compile(r"^```(bash|python)$", re.MULTILINE)
    pages = [page for page, path in PAGES.items() if found.search(path.read_text())]
    return [pytest.param(page, marks=() if page in QUICK else pytest.mark.slow) for page in pages]


@pytest.mark.parametrize("page", with_examples())
def test_a_page_runs_from_top_to_bottom(page: str, workplace: Path) -> None:
    """A command that fails, or shows something else, raises; blocks that are skipped are few."""
    ran = run_page(PAGES[page], workplace, as_written=page in AS_WRITTEN)
    assert ran > 0


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ("```bash\necho TTFT 3 ms\n```\n\n```text\nTTFT 4 ms\n...\n```\n", None),
        ("```bash\necho TTFT 3 ms\n```\n\n```text\nTPOT 4 ms\n```\n", "'TPOT' not in TTFT 3 ms"),
        ("```bash\nfalse\n```\n", "exit code 1"),
        ('<!-- skip: next "it fails" -->\n```bash\nfalse\n```\n', None),
        ("```bash\nservetwin workload stats nowhere.csv\n```\n", "exit code 2"),
        ("```bash\nservetwin workload stats nowhere.csv | cat\n```\n", "exit code 2"),
        ("```bash\nservetwin workload stats trace.jsonl > a\ngrep -q requests a\n```\n", None),
        ("```python\n1 / 0\n```\n", "division by zero"),
    ],
)
def test_a_page_that_is_wrong_is_found(page: str, problem: str | None, workplace: Path) -> None:
    path = workplace / "page.md"
    path.write_text(page)
    found = pytest.raises(Exception, match=problem) if problem else contextlib.nullcontext()
    with found:
        run_page(path, workplace)


def unlabelled() -> dict[str, list[str]]:
    found = {page: re.findall(UNLABELLED, path.read_text(), re.M) for page, path in PAGES.items()}
    return {page: of_page for page, of_page in found.items() if of_page}


@pytest.mark.parametrize("page", unlabelled())
def test_blocks_without_a_language_run_as_far_as_they_can(page: str, workplace: Path) -> None:
    """A command that fails raises in the shell; each that runs prints something."""
    with PageShell(workplace) as shell:
        for block in unlabelled()[page]:
            for line in command_lines(block):
                if line.split()[1] in RUN_UNLABELLED:
                    assert shell.run(line).strip(), line
