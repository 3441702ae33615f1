"""Step times from tables of TTFT and TBT, in the CSV schema of splitwise-sim (Patel 2024).

A row says how long the prompts (``prompt_time``, ms) and each later step (``token_time``, ms) of
``batch_size`` requests took that had ``prompt_size`` tokens each and were given ``token_size``.

==========  ======================================================================================
prefill     P(chunks, mean rows). Of a chunk that starts later, the table has a whole prompt up to
            its end and one up to its start: it takes what these differ by, and not less than the
            same rows at the start of a prompt.
decode      D(decodes, mean context). The context of a row is its middle one: prompt_size +
            token_size / 2 (prompt_size in a table without ``token_size``).
mixed       D + (P - D(one decode)), and not less than D or P alone: rows of prompts ride on a
            step that reads the weights anyway, and what one decode takes is that reading. No such
            table has measured it.
==========  ======================================================================================

Swapping takes no time.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from servetwin.policies.batch import BatchShape
from servetwin.sim.step_times.step_time import FloatArray
from servetwin.sim.step_times.tables.interpolate import LEVELS, LevelArray, Surface
from servetwin.sim.step_times.tables.measurements import (
    Measurements,
    points,
    require_rising,
    require_unit,
)
from servetwin.sim.step_times.tables.table import StepColumns, Table, TablePart, worst

_INTERPOLATED = LEVELS.index("interpolated")


class PhaseTable(Table):
    """Interpolates P (chunks, prompt tokens) and D (decodes, context of each)."""

    def __init__(self, prefill: Surface, decode: Surface) -> None:
        self.prefill = prefill
        self.decode = decode
        self.parts = {
            "prefill": TablePart(("chunks", "prompt"), prefill),
            "decode": TablePart(("decodes", "context"), decode),
        }

    @classmethod
    def read(
        cls,
        path: Path | str,
        *,
        model: str | None = None,
        hardware: str | None = None,
        tensor_parallel: int | None = None,
    ) -> "PhaseTable":
        """Read the rows of one model on one device; what is not named must be the same in all.

        Raises ``ProfileError`` naming file, line and column of what is wrong.
        """
        table = Measurements.read(path)
        wanted = {"model": model, "hardware": hardware, "tensor_parallel": tensor_parallel}
        for column, value in wanted.items():
            table = table.only(column, value)
        return cls(_prefill(table), _decode(table))

    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        """Return the seconds of ``steps`` repetitions, each with the growing decodes one longer."""
        prefill_s = self._prefill_s(shape)
        if not shape.decode_sequences:
            return np.full(steps, prefill_s)
        decode_s = self._decode_s(shape, steps)
        if not shape.prefill_chunks:
            return decode_s
        weights_s = float(self.decode.section(1)(np.zeros(1))[0])  # one decode, hardly a context
        riding_s = max(0.0, prefill_s - weights_s)
        return np.maximum(decode_s + riding_s, prefill_s)

    def _levels(self, steps: StepColumns) -> LevelArray:
        """Take a chunk that starts later, or beside decodes, as interpolated: no row has one."""
        decodes, context, chunks, chunk_rows, chunk_start = steps
        prefill = self.prefill.levels(chunks, chunk_start + chunk_rows)
        decode = self.decode.levels(decodes, context / np.maximum(decodes, 1))
        assumed = (chunks > 0) & ((chunk_start > 0) | (decodes > 0))
        return worst(
            np.where(chunks > 0, prefill, 0),
            np.where(decodes > 0, decode, 0),
            np.where(assumed, _INTERPOLATED, 0),
        )

    def _prefill_s(self, shape: BatchShape) -> float:
        chunks = len(shape.prefill_chunks)
        if not chunks:
            return 0.0
        start, rows = (sum(part) / chunks for part in zip(*shape.prefill_chunks, strict=True))
        at = np.array([start + rows, start, rows])
        up_to_end_s, up_to_start_s, alone_s = self.prefill.section(chunks)(at)
        return float(max(alone_s, up_to_end_s - up_to_start_s))

    def _decode_s(self, shape: BatchShape, steps: int) -> FloatArray:
        decodes = shape.decode_sequences
        context = shape.decode_context_tokens + shape.decode_growing * np.arange(steps)
        return self.decode.section(decodes)(context / decodes)


def _prefill(table: Measurements) -> Surface:
    return _surface(table, "prompt_time", "prompt_size", table.counts("prompt_size", 1))


def _decode(table: Measurements) -> Surface:
    context = table.counts("prompt_size", 1)
    if "token_size" in table:
        context = context + table.counts("token_size", 1) / 2
    return _surface(table, "token_time", "context", context)


def _surface(table: Measurements, column: str, axis: str, tokens: "pd.Series[float]") -> Surface:
    """Return the times of a column by the size of the batch and by ``tokens``, named ``axis``."""
    places = points(table.times_s(column), table.counts("batch_size", 1), tokens)
    require_unit(str(table.path), places[-1], "ms")
    require_rising(table.path, column, places[-1], **{"batch_size": places[0], axis: places[1]})
    return Surface(*places)
