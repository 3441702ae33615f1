"""The file of a sweep: a row is appended as its point ends, so a killed sweep goes on from there.

At the end the rows are put into the order of the grid, once.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pandas as pd

from servetwin.app.scenario.options.policy import ScenarioOptions
from servetwin.sim.experiments.sweep import COUNTS, FIGURE_MEANINGS, PROBLEM, Row
from servetwin.sim.records.metrics import SLO
from servetwin.sim.records.run import machine_facts
from servetwin.workloads.errors import ServetwinError, os_errors
from servetwin.workloads.files import Drafts
from servetwin.workloads.trace import Trace

SWEEP, RATE = "sweep", "rate_per_s"
# The values of a point by key, and its rate.
Point = Mapping[str, Any]

_NAME_ANOTHER = "name another --out, or --overwrite it"


class SweepError(ServetwinError):
    """The file of a sweep cannot be read, written or continued."""


class SweepFile:
    """Rows by what they vary and their rate; in memory, and at ``path`` where there is one.

    ``wanted`` points, by key and rate, give the order; others that are in the file come after them.
    ``identity`` (of ``identity``) tells this sweep's rows from those of another one, which
    ``overwrite`` replaces. A process that is killed may leave a last line without its end: it is
    not read, and the next row takes its place. Raises ``SweepError`` where ``path`` holds anything
    else.
    """

    def __init__(
        self,
        path: Path | None,
        keys: Sequence[str],
        wanted: Sequence[Point],
        identity: str,
        overwrite: bool = False,
    ) -> None:
        if path is not None and path.suffix != ".csv":
            raise SweepError(f"--out: {path.name}: wants the ending .csv")
        self._path = path
        self._keys = list(keys)
        self._columns = [*self._keys, RATE, *FIGURE_MEANINGS, PROBLEM, SWEEP]
        self._written_columns, self._whole_bytes = self._columns, 0
        self._identity = identity
        self._order = {self._place(point): number for number, point in enumerate(wanted)}
        kept = self._kept(path, overwrite) if path else []
        self._rows = {self._place(row): row for row in kept}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        """Put the rows into the order of the grid."""
        if self._path is not None and list(self._rows) != self._in_order():
            self._write(self._path)

    def __contains__(self, row: Point) -> bool:
        """Return whether this point, its axes and rate, has a row."""
        return self._place(row) in self._rows

    def add(self, point: Point, figures: Row) -> None:
        """Add a finished point; it is in the file when this returns."""
        blank = dict.fromkeys([*FIGURE_MEANINGS, PROBLEM])
        row = {**point, **blank, **figures, SWEEP: self._identity}
        if self._path is not None:
            with _written(self._path):
                self._append(self._path, row)
        self._rows[self._place(point)] = row

    def frame(self) -> pd.DataFrame:
        """Return all rows; figures are numbers."""
        return self._frame(self._rows[place] for place in self._in_order())

    def _in_order(self) -> list[tuple[str, ...]]:
        return sorted(self._rows, key=lambda place: self._order.get(place, len(self._order)))

    def _frame(self, rows: Iterable[Row]) -> pd.DataFrame:
        frame = pd.DataFrame(list(rows), columns=self._columns)
        numbers = dict.fromkeys((RATE, *FIGURE_MEANINGS), float)
        counts = dict.fromkeys(COUNTS, "Int64")
        return frame.astype(numbers).astype(counts).fillna({PROBLEM: ""})

    def _place(self, row: Point) -> tuple[str, ...]:
        rate = row[RATE]
        return (*(str(row[key]) for key in self._keys), "" if pd.isna(rate) else f"{rate:.12g}")

    def _write(self, path: Path) -> None:
        """Write all rows in their order, in the place of what is there."""
        with _written(path), Drafts() as drafts:
            self.frame().to_csv(drafts.of(path), index=False)

    def _append(self, path: Path, row: Row) -> None:
        """Append a row in one write, in the order of the columns that are there.

        It has left this process when this returns: a kill does not lose it.
        """
        frame = self._frame([row])[self._written_columns]
        text = frame.to_csv(header=not self._whole_bytes, index=False).encode()
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0) as file:
            file.truncate(self._whole_bytes)
            file.seek(self._whole_bytes)
            file.write(text)
        self._whole_bytes += len(text)

    def _kept(self, path: Path, overwrite: bool) -> Sequence[Row]:
        """Return the rows of this sweep that are there; none where they are to be replaced."""
        with os_errors(SweepError, f"{path}: not a readable frame", ValueError):
            content = path.read_bytes() if path.exists() else b""
            if not content:
                return []
            whole = content[: content.rfind(b"\n") + 1]
            if not whole:
                raise ValueError("no line of it has an end")
            frame = _with_numbers(pd.read_csv(BytesIO(whole), dtype=str, keep_default_na=False))
        if overwrite:
            if SWEEP not in frame:
                raise SweepError(f"{path}: is not of any sweep; name another --out")
            return []
        if problem := self._foreign(frame):
            raise SweepError(f"{path}: is not of this sweep ({problem}); {_NAME_ANOTHER}")
        self._written_columns, self._whole_bytes = list(frame.columns), len(whole)
        rows: list[Any] = frame.to_dict("records")
        return rows

    def _foreign(self, frame: pd.DataFrame) -> str | None:
        """Return why a frame is not of this sweep; None where it is."""
        if {SWEEP, RATE} <= set(frame.columns):
            theirs = list(frame.columns[: frame.columns.get_loc(RATE)])
            if set(theirs) != set(self._keys):
                return f"it varies {_listed(theirs)}, not {_listed(self._keys)}"
            if set(frame.columns) == set(self._columns) and {*frame[SWEEP]} <= {self._identity}:
                return None
        return "another trace, server, SLO, seed or version"


def _with_numbers(texts: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with numbers, to the last bit, in the place of their texts."""
    names = texts.columns.intersection([RATE, *FIGURE_MEANINGS])
    numbers = {name: [float(text or "nan") for text in texts[name]] for name in names}
    return texts.assign(**numbers)


def _listed(keys: Sequence[str]) -> str:
    return ", ".join(keys) or "nothing"


def _written(path: Path) -> AbstractContextManager[None]:
    return os_errors(SweepError, f"{path}: cannot be written")


def identity(options: ScenarioOptions, trace: Trace, slo: SLO, keys: Sequence[str]) -> str:
    """Return a digest of all that the figures depend on, beside a point's own values and rate."""
    trace_digest = blake2b(repr(tuple(trace.requests)).encode(), digest_size=16).hexdigest()
    texts = [*options.servers.profile, options.policy.batching, options.policy.kv]
    facts = {
        "servetwin": machine_facts()["servetwin"],
        "trace": trace_digest,
        "servers": options.servers.settings(),
        "files": [_content(text) for text in texts if text],
        "policies": asdict(options.policy),
        "cluster": asdict(options.cluster),
        "slo": asdict(slo),
        "seed": options.trace.seed,
        "axes": sorted(keys),
    }
    text = json.dumps(facts, sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=8).hexdigest()


def _content(text: str) -> str:
    """Return a digest of the file that a profile or a policy names; nothing where it names none."""
    path = Path(text.partition(":")[0])
    return blake2b(path.read_bytes()).hexdigest() if path.is_file() else ""
