"""Progress on anything over a second: a bar on a terminal, plain lines elsewhere, on stderr."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

import typer

from servetwin.workloads.errors import LoadTestError, os_errors

if TYPE_CHECKING:
    from servetwin.loadtest.run.progress import Progress as TestProgress


_FIRST_LINE_AFTER_S = 1.0
_LINE_EVERY_S = 5.0


def report_progress(line: str) -> None:
    """Write one line on what is being done to stderr."""
    typer.echo(line, err=True)


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes how many of ``total`` are done."""
    if sys.stderr.isatty():
        with _bar(label, total) as advance:
            yield advance
    else:
        yield _lines(label, total)


@contextmanager
def _bar(label: str, total: int) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.update(task, completed=done)


def _lines(label: str, total: int) -> Callable[[int], None]:
    next_line_s = time.monotonic() + _FIRST_LINE_AFTER_S

    def advance(done: int) -> None:
        nonlocal next_line_s
        if time.monotonic() >= next_line_s:
            typer.echo(f"{label}: {done} of {total}", err=True)
            next_line_s = time.monotonic() + _LINE_EVERY_S

    return advance


@contextmanager
def live_file(path: Path | None) -> Iterator[Callable[["TestProgress"], None]]:
    """Yield a function that appends a state; one that does nothing without a ``path``.

    Raises ``LoadTestError`` where the file cannot be made. Once it cannot be written it ends, and
    the load test goes on.
    """
    if path is None:
        yield lambda state: None
        return
    with os_errors(LoadTestError, f"--live {path}: cannot be written"):
        file = path.open("w", buffering=1)
    with file:
        yield lambda state: _append(file, state)


def _append(file: TextIO, state: "TestProgress") -> None:
    if file.closed:
        return
    try:
        shown = {name: value for name, value in asdict(state).items() if name != "journal"}
        file.write(json.dumps(shown) + "\n")
    except OSError:
        with suppress(OSError):
            file.close()


class Savable(Protocol):
    """A run, or runs that belong together."""

    def save(self, folder: Path) -> object:
        """Write the run; raises ``NotSaved`` where a file could not be written."""


@contextmanager
def saved(run: Savable, folder: Path) -> Iterator[Path]:
    """Yield where ``run`` is saved: in ``folder``, else in the temporary directory.

    At the end a line says what could not be written, and the exit code is 1.
    """
    from servetwin.sim.records.run import NotSaved

    trouble = None
    try:
        run.save(folder)
    except NotSaved as error:
        trouble = error
    try:
        yield (trouble.instead if trouble else None) or folder
    finally:
        if trouble:
            typer.echo(f"servetwin: {trouble}", err=True)
    if trouble:
        raise typer.Exit(trouble.exit_code)


def saved_if_asked(run: Savable, folder: Path | None) -> AbstractContextManager[Path | None]:
    """Yield as ``saved`` does where there is a folder; else None."""
    return saved(run, folder) if folder else nullcontext()
