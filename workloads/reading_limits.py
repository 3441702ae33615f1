"""Limits of a reading, for files of unknown origin."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from servetwin.workloads.errors import TraceError
from servetwin.workloads.json_array import NumberedRow


@dataclass(frozen=True, slots=True)
class ReadingLimits:
    """How many rows a file may have, and how long reading them may take."""

    rows: int
    seconds: float

    def checked(self, path: Path, numbered: Iterable[NumberedRow]) -> Iterator[NumberedRow]:
        """Yield the rows; raise ``TraceError`` with the limit as soon as they exceed it."""
        until_s = time.monotonic() + self.seconds
        for count, row in enumerate(numbered, 1):
            if count > self.rows:
                raise TraceError(f"{path}: more than {self.rows:,} rows; take a part of it")
            if time.monotonic() > until_s:
                raise TraceError(
                    f"{path}: {count - 1:,} rows took more than {self.seconds:g} s; "
                    "take a part of it"
                )
            yield row
