"""The progress of a load test as a file that grows: one JSON line a second."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from servetwin.workloads.errors import LoadTestError

if TYPE_CHECKING:
    from servetwin.loadtest.run.progress import Progress


@contextmanager
def live_file(path: Path | None) -> Iterator[Callable[["Progress"], None]]:
    """Yield a function that appends a state; one that does nothing without a ``path``.

    Raises ``LoadTestError`` where the file cannot be made. Once it cannot be written it ends, and
    the load test goes on.
    """
    if path is None:
        yield lambda state: None
        return
    try:
        file = path.open("w", buffering=1)
    except OSError as error:
        raise LoadTestError(f"--live {path}: cannot be written ({error.strerror})") from error
    with file:
        yield lambda state: _append(file, state)


def _append(file: TextIO, state: "Progress") -> None:
    if file.closed:
        return
    try:
        shown = {name: value for name, value in asdict(state).items() if name != "journal"}
        file.write(json.dumps(shown) + "\n")
    except OSError:
        with suppress(OSError):
            file.close()
