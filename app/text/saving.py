"""A run is saved before it is reported, and reported even where it cannot be saved."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Protocol

import typer


class Kept(Protocol):
    """A run, or runs that belong together."""

    def save(self, folder: Path) -> object:
        """Raises ``NotSaved`` where something could not be written."""


@contextmanager
def saved(found: Kept, folder: Path) -> Iterator[Path]:
    """Yields where ``found`` is now: in ``folder``, else in the temporary directory.

    What could not be written is said once all else has been; the exit code is 1 then.
    """
    from sim.records.run import NotSaved

    trouble = None
    try:
        found.save(folder)
    except NotSaved as error:
        trouble = error
    try:
        yield (trouble.instead if trouble else None) or folder
    finally:
        if trouble:
            typer.echo(f"servetwin: {trouble}", err=True)
    if trouble:
        raise typer.Exit(trouble.exit_code)


def saved_if_asked(found: Kept, folder: Path | None) -> AbstractContextManager[Path | None]:
    """``saved``, where there is a folder."""
    return saved(found, folder) if folder else nullcontext()
