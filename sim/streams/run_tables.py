"""The tables of a run that is never in memory as a whole: written in row groups, summarized."""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from servetwin.sim.records.metrics import SLO
from servetwin.sim.records.run import NotWritten, Run
from servetwin.sim.records.run_folder import SUMMARY, write_files
from servetwin.sim.step_times.provenance import ProvenanceSum, Source
from servetwin.sim.step_times.server_model import ServerModel
from servetwin.sim.streams.row_groups import SCHEMAS, ParquetRows, RowGroups
from servetwin.sim.streams.sketched_summary import SketchedSummary
from servetwin.sim.streams.table_sink import not_written


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
        self._groups = {name: RowGroups(self._taking(name)) for name in SCHEMAS}
        self._figures = SketchedSummary(slo)
        self._rows = dict.fromkeys(SCHEMAS, 0)
        self._steps = 0
        for name in ("requests", "steps"):
            self._open(name)

    def take(self, name: str, table: pa.Table) -> None:
        """Take rows of a table. Raises ``NotWritten`` where they cannot be written."""
        self._groups[name].add(table.select(SCHEMAS[name].names))

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
            (SUMMARY, json.dumps(summary, indent=1).encode()),
        ]
        for missing in write_files(self._folder, small):
            path = self._folder / missing.name
            raise NotWritten(f"{path}: could not be written ({missing.reason})")

    def abandon(self) -> None:
        """Remove what was written of a run that failed."""
        for file in self._files.values():
            with suppress(OSError):
                file.abandon()

    def _taking(self, name: str) -> Callable[[pa.Table], None]:
        checks = {"requests": self._figures_of, "steps": self._check_steps}

        def take(group: pa.Table) -> None:
            if name in checks:
                checks[name](group)
            self._rows[name] += len(group)
            if self._folder is not None:
                if name not in self._files:
                    self._open(name)
                self._try(lambda: self._files[name].write(group), f"{name}.parquet")

        return take

    def _figures_of(self, group: pa.Table) -> None:
        self._figures.add(group)

    def _check_steps(self, group: pa.Table) -> None:
        frame = group.to_pandas()
        frame.index += self._rows["steps"]
        run = Run("simulation", frame.iloc[:0], frame, {})
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
