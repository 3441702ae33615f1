"""A run is saved before it is reported, and reported even where it cannot be saved."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Protocol

import typer


class Kept(Protocol):
    """A run, or runs that belong together."""

    def save(self, folder: Path) -> object:
        """Write the run; raises ``NotSaved`` where a file could not be written."""


@contextmanager
def saved(run: Kept, folder: Path) -> Iterator[Path]:
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


def saved_if_asked(run: Kept, folder: Path | None) -> AbstractContextManager[Path | None]:
    """Yield as ``saved`` does where there is a folder; else None."""
    return saved(run, folder) if folder else nullcontext()
