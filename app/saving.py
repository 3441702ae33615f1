"""A run is saved before it is reported, and reported even where it cannot be saved."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from sim.run import Run


@contextmanager
def saved(run: "Run", folder: Path) -> Iterator[Path]:
    """Yields where the run is now: in ``folder``, else in the temporary directory.

    What could not be written is said once all else has been; the exit code is 1 then.
    """
    from sim.run import NotSaved

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
