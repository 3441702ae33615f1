"""What a run rests on where its step times come from a table."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from sim.step_times.provenance import Excess, Provenance
from sim.step_times.step_time import FloatArray
from sim.step_times.tables.table import Table


@dataclass(frozen=True, slots=True)
class TableSource:
    """Each row of steps is judged at its middle, its chunks as equally long."""

    profile: str
    table: Table

    def row_shares(self, steps: pd.DataFrame) -> dict[Provenance, FloatArray]:
        """All of a row is of the kind of its middle step."""
        decodes, chunks = (steps[n].to_numpy(float) for n in ("decode_sequences", "prefill_chunks"))
        context = steps["decode_context_tokens"] + decodes * (steps["steps"] - 1) / 2
        rows, starts = _chunks(steps, chunks)
        kinds = self.table.provenance(decodes, context, chunks, rows, starts)
        known: tuple[Provenance, ...] = ("measured", "interpolated", "extrapolated")
        return {kind: (kinds == kind).astype(float) for kind in known}

    def excesses(self, steps: pd.DataFrame) -> list[Excess]:
        """The axes that some step goes beyond."""
        largest: dict[str, float] = {}
        for axes in self.table.ranges.values():
            for axis, (_, most) in axes.items():
                largest[axis] = max(most, largest.get(axis, 0.0))
        return [
            Excess(self.profile, axis, value, largest[axis])
            for axis, value in _reached(steps).items()
            if axis in largest and value > largest[axis]
        ]


def _chunks(steps: pd.DataFrame, chunks: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(rows, start) of a chunk, each row's chunks taken as equal: from their rows and pairs."""
    count = np.maximum(1.0, chunks)
    rows = (steps["rows"] - steps["decode_sequences"]).to_numpy(float) / count
    pairs = steps["prefill_pairs"].to_numpy(float) / count
    before = pairs / np.maximum(1.0, rows) - (rows + 1) / 2
    return rows, np.maximum(0.0, np.rint(before))


def _reached(steps: pd.DataFrame) -> dict[str, float]:
    """The farthest that a run came along the axes that tables have; context is a decode's mean."""
    chunks = steps["prefill_chunks"].to_numpy(float)
    decodes = steps["decode_sequences"].to_numpy(float)
    rows, starts = _chunks(steps, chunks)
    context = steps["decode_context_tokens"].to_numpy(float) / np.maximum(1.0, decodes)
    values = {
        "rows": steps["rows"].to_numpy(float),
        "decodes": decodes,
        "context": context + (steps["steps"].to_numpy(float) - 1),
        "chunks": chunks,
        "chunk rows": rows * (chunks > 0),
        "chunk start": starts * (chunks > 0),
        "prompt": (rows + starts) * (chunks > 0),
    }
    return {axis: float(array.max(initial=0.0)) for axis, array in values.items()}
