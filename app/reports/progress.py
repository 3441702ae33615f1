"""Progress on anything over a second: a bar on a terminal, plain lines elsewhere, on stderr."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

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
