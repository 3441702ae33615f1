"""The tables of a run that is never in memory as a whole.

Rows come in pieces of any size and leave in groups of one size, as Parquet has them.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from servetwin.sim.core.recorder import STEP_ROW
from servetwin.sim.long_runs.sketched_summary import SketchedSummary
from servetwin.sim.records import run as records
from servetwin.sim.records.metrics import REQUEST_COLUMNS, SLO
from servetwin.sim.step_times.provenance import ProvenanceSum, Source
from servetwin.sim.step_times.server_model import ServerModel

GROUP_ROWS = 1 << 16
_TEXTS = ("request_id", "status", "error")

Take = Callable[[pa.Table], None]


def _column_type(name: str) -> pa.DataType:
    if name in _TEXTS:
        return pa.string()
    return pa.float64() if name.endswith("_s") else pa.int64()


def _schema(names: tuple[str, ...]) -> pa.Schema:
    return pa.schema([(name, _column_type(name)) for name in names])


SCHEMAS = {
    "requests": _schema(REQUEST_COLUMNS),
    "steps": pa.schema({n: pa.from_numpy_dtype(STEP_ROW[n]) for n in STEP_ROW.names or ()}),
    "pauses": _schema(records.PAUSE_COLUMNS),
    "handovers": _schema(records.HANDOVER_COLUMNS),
}
"""The schemas of the tables of a run, by name."""


class RowGroups:
    """Collects rows and gives them to ``take`` in groups of ``GROUP_ROWS``, the last one smaller.

    So what becomes of them does not depend on the pieces in which they came.
    """

    def __init__(self, take: Take) -> None:
        self._take = take
        self._pieces: list[pa.Table] = []
        self._rows = 0

    def add(self, table: pa.Table) -> None:
        """Add rows."""
        self._pieces.append(table)
        self._rows += len(table)
        if self._rows >= GROUP_ROWS:
            rows = self._together()
            whole = len(rows) - len(rows) % GROUP_ROWS
            for first in range(0, whole, GROUP_ROWS):
                self._take(rows.slice(first, GROUP_ROWS).combine_chunks())
            self._pieces, self._rows = [rows.slice(whole)], len(rows) - whole

    def close(self) -> None:
        """Give what is left."""
        if self._rows:
            self._take(self._together().combine_chunks())
        self._pieces, self._rows = [], 0

    def _together(self) -> pa.Table:
        return pa.concat_tables(self._pieces)


class ParquetRows:
    """Writes tables to a file, each as one row group; the file has its name once it is whole."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path, self._draft = path, path.with_name(f".{path.name}.tmp")
        self._writer = pq.ParquetWriter(self._draft, schema)

    def write(self, table: pa.Table) -> None:
        """Write a row group."""
        self._writer.write_table(table, row_group_size=max(1, len(table)))

    def close(self) -> None:
        """Give the file its name."""
        self._writer.close()
        self._draft.replace(self._path)

    def abandon(self) -> None:
        """Remove what was written."""
        self._writer.close()
        self._draft.unlink(missing_ok=True)


def _stamps(name: str, stamps: list[list[float]]) -> pa.Table:
    schema = SCHEMAS[name]
    rows = [[*stamp, *[None] * (len(schema) - len(stamp))] for stamp in stamps]
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def not_written(path: Path, error: OSError) -> records.NotWritten:
    """Return the error for a file of a stream that cannot be written."""
    reason = error.strerror or str(error)
    return records.NotWritten(f"{path}: could not be written ({reason}); the run is not kept")


class RunTables:
    """Takes the rows of a run in their final order; writes them where there is a folder.

    Every group of steps is checked by the ``servers`` (by replica) and counted by ``sources``.
    """

    def __init__(
        self,
        servers: Sequence[ServerModel],
        sources: Sequence[Source],
        folder: Path | None = None,
        slo: SLO | None = None,
    ) -> None:
        self._servers = servers
        self._provenance = ProvenanceSum(sources)
        self._folder = folder
        self._files: dict[str, ParquetRows] = {}
        self._figures = SketchedSummary(slo)
        self._groups = {name: RowGroups(self._taking(name)) for name in SCHEMAS}
        self._rows = dict.fromkeys(SCHEMAS, 0)
        self._steps = 0
        for name in ("requests", "steps"):
            self._open(name)

    def take(self, name: str, rows: Any) -> None:
        """Take rows of a table (``sim.core.recorder.TakeRows``).

        Raises ``NotWritten`` where they cannot be written.
        """
        table = pa.table(rows, SCHEMAS[name]) if isinstance(rows, dict) else _stamps(name, rows)
        self._groups[name].add(table)

    def summary(self, wall_s: float) -> dict[str, Any]:
        """End the tables and return the figures of the run, as ``Run.summary`` does."""
        for groups in self._groups.values():
            groups.close()
        rate = self._rows["requests"] / wall_s if wall_s > 0 else 0.0
        simulation = {"wall_s": wall_s, "requests_per_s": rate, "steps": self._steps}
        provenance = self._provenance.provenance().as_dict()
        return {**self._figures.summary(), "simulation": simulation, "provenance": provenance}

    def error_counts(self) -> dict[str, int]:
        """Return the requests by what was wrong with them."""
        return dict(self._figures.errors)

    def save(self, summary: dict[str, Any], scenario: dict[str, Any], meta: dict[str, Any]) -> None:
        """Complete the run folder, the summary last. Raises ``NotWritten``."""
        if self._folder is None:
            return
        for name, file in self._files.items():
            self._try(file.close, f"{name}.parquet")
        small = [
            ("meta.json", json.dumps({"kind": "simulation", **meta}, indent=1).encode()),
            ("scenario.yaml", yaml.safe_dump(scenario, sort_keys=False).encode()),
            (records.SUMMARY, json.dumps(summary, indent=1).encode()),
        ]
        for missing in records.write_files(self._folder, small):
            path = self._folder / missing.name
            raise records.NotWritten(f"{path}: could not be written ({missing.reason})")

    def abandon(self) -> None:
        """Remove what was written of a run that failed."""
        for file in self._files.values():
            with suppress(OSError):
                file.abandon()

    def _taking(self, name: str) -> Callable[[pa.Table], None]:
        checks = {"requests": self._figures.add, "steps": self._check_steps}

        def take(group: pa.Table) -> None:
            if name in checks:
                checks[name](group)
            self._rows[name] += len(group)
            if self._folder is not None:
                if name not in self._files:
                    self._open(name)
                self._try(lambda: self._files[name].write(group), f"{name}.parquet")

        return take

    def _check_steps(self, group: pa.Table) -> None:
        frame = group.to_pandas()
        frame.index += self._rows["steps"]
        run = records.Run("simulation", frame.iloc[:0], frame, {})
        for replica in frame["replica"].unique().tolist():
            self._servers[replica].check(run, replica)
        self._provenance.add(frame)
        self._steps += int(frame["steps"].sum())

    def _open(self, name: str) -> None:
        if self._folder is None:
            return
        path = self._folder / f"{name}.parquet"
        self._try(lambda: self._files.update({name: ParquetRows(path, SCHEMAS[name])}), path.name)

    def _try(self, write: Callable[[], object], name: str) -> None:
        try:
            write()
        except OSError as error:
            assert self._folder is not None
            raise not_written(self._folder / name, error) from error
