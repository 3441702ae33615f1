"""A table of measured times with the overheads of the server around it (``ServerOverheads``)."""

import numpy as np
import pandas as pd

from servetwin.policies.batch import BatchShape
from servetwin.sim.step_times.origin import Origin
from servetwin.sim.step_times.piecewise import Piece, PiecewiseStepTime
from servetwin.sim.step_times.server_overheads import ServerOverheads
from servetwin.sim.step_times.step_time import FloatArray, to_units
from servetwin.sim.step_times.tables.held_out import HeldOutError
from servetwin.sim.step_times.tables.interpolate import LevelArray
from servetwin.sim.step_times.tables.kernel_table import KernelTable
from servetwin.sim.step_times.tables.layer_table import LayerTable
from servetwin.sim.step_times.tables.table import StepColumns, Table


class LoadedTable(PiecewiseStepTime, Table):
    """Steps of ``table`` and the overheads of each, all times ``factor``.

    Overheads do not depend on the context, so a run of steps keeps the pieces of the table.
    """

    def __init__(
        self, table: KernelTable | LayerTable, overheads: ServerOverheads, factor: float = 1.0
    ) -> None:
        self.table, self.overheads, self.factor = table, overheads, factor
        self.parts, self.origin = table.parts, table.origin
        self.wants_longest = getattr(table, "wants_longest", False)
        self._step = to_units(factor * overheads.step_s)
        self._sequence = to_units(factor * overheads.sequence_s)
        self._prefill_step = to_units(factor * overheads.prefill_step_s)
        self._prefill_chunk = to_units(factor * overheads.prefill_chunk_s)
        self._prefill_row = to_units(factor * overheads.prefill_row_s)

    def scaled(self, factor: float) -> "LoadedTable":
        """Return a model that takes ``factor`` times as long, its overheads too."""
        return LoadedTable(self.table.scaled(factor), self.overheads, self.factor * factor)

    def piece(self, shape: BatchShape, step: int = 0) -> Piece:
        """Return the piece of the table, with the overheads in each of its steps."""
        first, slope, steps = self.table.piece(shape, step)
        chunks = shape.prefill_chunks
        first += self._step + self._sequence * (shape.decode_sequences + len(chunks))
        if chunks:
            first += self._prefill_step + self._prefill_chunk * len(chunks)
            first += self._prefill_row * sum(rows for _, rows in chunks)
        return Piece(first, slope, steps)

    def row_origins(self, steps: pd.DataFrame) -> dict[Origin, FloatArray]:
        """Return the shares of the table and of the overheads, where these have another origin."""
        lasted_s = (steps["end_s"] - steps["start_s"]).to_numpy(float)
        added_s = self.factor * self.overheads.seconds_of_rows(steps)
        share = np.clip(added_s / np.where(lasted_s > 0, lasted_s, np.inf), 0.0, 1.0)
        if self.overheads.origin == self.origin:
            return {self.origin: np.ones(len(steps))}
        return {self.origin: 1 - share, self.overheads.origin: share}

    def log_deviation(self) -> float:
        """Return that of the table."""
        return self.table.log_deviation()

    def held_out_errors(self, seed: int = 0) -> dict[str, HeldOutError | None]:
        """Return those of the table."""
        return self.table.held_out_errors(seed)

    def summary(self, seed: int = 0) -> list[str]:
        """Return the lines of the table, and one of the overheads."""
        return [*self.table.summary(seed), self.overheads.described()]

    def _levels(self, steps: StepColumns) -> LevelArray:
        return self.table._levels(steps)
