"""The file of a sweep: whole after every point, so that a killed sweep goes on where it was."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pandas as pd

from app.scenario.scenario_options import ScenarioOptions
from sim.experiments.sweep import COUNTS, FIGURE_MEANINGS, PROBLEM, Row
from sim.records.metrics import SLO
from sim.records.run import machine_facts
from workloads.errors import ServetwinError
from workloads.trace import Trace

SWEEP, RATE = "sweep", "rate_per_s"
Point = Mapping[str, Any]
"""The values of a point by key, and its rate."""

_SUFFIXES = (".csv", ".parquet")


class SweepError(ServetwinError):
    """The file of a sweep cannot be read, written or continued."""


class SweepFile:
    """Rows by what they vary and their rate; in memory, and at ``path`` where there is one.

    ``wanted`` points, by key and rate, give the order; others that are in the file come after them.
    ``identity`` (of ``identity``) tells this sweep's rows from those of another one, which
    ``overwrite`` replaces. Raises ``SweepError`` where ``path`` holds anything else.
    """

    def __init__(
        self,
        path: Path | None,
        keys: Sequence[str],
        wanted: Sequence[Point],
        identity: str,
        overwrite: bool = False,
    ) -> None:
        if path is not None and path.suffix not in _SUFFIXES:
            raise SweepError(f"--out: {path.name}: wants the ending {' or '.join(_SUFFIXES)}")
        self._path = path
        self._keys = list(keys)
        self._identity = identity
        kept = self._read(path, overwrite) if path and path.exists() else None
        rows: list[Any] = [] if kept is None or overwrite else kept.to_dict("records")
        self._rows: dict[tuple[str, ...], Row] = {self._place(row): row for row in rows}
        self._order = {self._place(point): number for number, point in enumerate(wanted)}

    def __contains__(self, row: Point) -> bool:
        """Return whether this point, its axes and rate, has a row."""
        return self._place(row) in self._rows

    def add(self, point: Point, figures: Row) -> None:
        """Add a finished point; it is on disk when this returns."""
        blank = dict.fromkeys([*FIGURE_MEANINGS, PROBLEM])
        self._rows[self._place(point)] = {**point, **blank, **figures, SWEEP: self._identity}
        if self._path is not None:
            self._write(self._path)

    def frame(self) -> pd.DataFrame:
        """Return all rows; figures are numbers."""
        columns = [*self._keys, RATE, *FIGURE_MEANINGS, PROBLEM, SWEEP]
        places = sorted(self._rows, key=lambda place: self._order.get(place, len(self._order)))
        frame = pd.DataFrame([self._rows[place] for place in places], columns=columns)
        numbers = dict.fromkeys((RATE, *FIGURE_MEANINGS), float)
        counts = dict.fromkeys(COUNTS, "Int64")
        return frame.astype(numbers).astype(counts).fillna({PROBLEM: ""})

    def _place(self, row: Point) -> tuple[str, ...]:
        rate = row[RATE]
        return (*(str(row[key]) for key in self._keys), "" if pd.isna(rate) else f"{rate:.12g}")

    def _write(self, path: Path) -> None:
        part = path.with_name(f".{path.name}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            frame = self.frame()
            write = frame.to_csv if path.suffix == ".csv" else frame.to_parquet
            write(part, index=False)
            os.replace(part, path)
        except OSError as error:
            raise SweepError(f"{path}: cannot be written ({error.strerror})") from error

    def _read(self, path: Path, overwrite: bool) -> pd.DataFrame:
        texts = dict.fromkeys((*self._keys, PROBLEM, SWEEP), str)
        try:
            if path.suffix == ".csv":
                frame = pd.read_csv(path, dtype=texts, keep_default_na=False, na_values={
                    name: [""] for name in (RATE, *FIGURE_MEANINGS)
                })  # fmt: skip
            else:
                frame = pd.read_parquet(path)
        except (OSError, ValueError) as error:
            raise SweepError(f"{path}: not a readable frame ({error})") from error
        if overwrite and SWEEP not in frame:
            raise SweepError(f"{path}: is not of any sweep; name another --out")
        if not overwrite and set(frame.get(SWEEP, [""])) - {self._identity}:
            raise SweepError(
                f"{path}: is not of this sweep (another trace, server, SLO, seed or axes); "
                "name another --out, or --overwrite it"
            )
        return frame


def identity(options: ScenarioOptions, trace: Trace, slo: SLO, keys: Sequence[str]) -> str:
    """Return a digest of all that the figures depend on, beside a point's own values and rate."""
    trace_digest = blake2b(repr(trace.requests).encode(), digest_size=16).hexdigest()
    texts = [*options.servers.profiles, options.policy.batching, options.policy.kv]
    facts = {
        "servetwin": machine_facts()["servetwin"],
        "trace": trace_digest,
        "servers": options.servers.record(),
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
