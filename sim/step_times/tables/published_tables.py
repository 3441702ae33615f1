"""Step times from tables that others publish: of single operators, and of whole phases.

Profiles of operators are in the CSV schema of Vidur (Agrawal 2024).

A step of n rows takes::

    overhead + embedding(n) + layers * (products and norms(n) + cache writes(n)
                                        + sum over chunks of prefill attention(rows, start)
                                        + decode attention(decodes, mean context))

``mlp.csv`` has the operators that depend on the rows alone (``num_tokens``), ``attention.csv``
those of one prompt's chunk (``prefill_chunk_size`` rows after ``kv_cache_size`` positions) and of
``batch_size`` decodes that find ``kv_cache_size`` positions each. Columns are
``time_stats.<operator>.median`` in ms, per layer (``emb``: per step).

Neither file has the language-model head, messages between devices or the server's own work: what
is known of them goes into ``overhead_s``. Swapping takes no time.

Tables of TTFT and TBT are in the CSV schema of splitwise-sim (Patel 2024).

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

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from servetwin.policies.batch import BatchShape
from servetwin.sim.step_times.step_time import FloatArray, Remembered
from servetwin.sim.step_times.tables.interpolate import LEVELS, Curve, LevelArray, Surface
from servetwin.sim.step_times.tables.measurements import (
    Measurements,
    points,
    require_rising,
    require_unit,
)
from servetwin.sim.step_times.tables.table import StepColumns, Table, TablePart, worst
from servetwin.workloads.errors import ProfileError

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
        prompts = table.counts("prompt_size", 1)
        context = prompts
        if "token_size" in table:
            context = prompts + table.counts("token_size", 1) / 2
        prefill = _surface(table, "prompt_time", "prompt_size", prompts)
        return cls(prefill, _surface(table, "token_time", "context", context))

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

    def levels(self, steps: StepColumns) -> LevelArray:
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


def _surface(table: Measurements, column: str, axis: str, tokens: "pd.Series[float]") -> Surface:
    """Return the times of a column by the size of the batch and by ``tokens``, named ``axis``."""
    places = points(table.times_s(column), table.counts("batch_size", 1), tokens)
    require_unit(str(table.path), places[-1], "ms")
    require_rising(table.path, column, places[-1], **{"batch_size": places[0], axis: places[1]})
    return Surface(*places)


_TENSOR_PARALLEL = "num_tensor_parallel_workers"
# Columns that say whose operators these are; the rows must agree in them.
_MODEL = (
    "n_head", "n_q_head", "n_kv_head", "n_embd", "n_expanded_embd", "vocab_size", "use_gated_mlp",
    "block_size",
)  # fmt: skip

_NEEDED = ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_act", "mlp_down_proj")
_PREFILL, _DECODE, _EMBEDDING = "attn_prefill", "attn_decode", "emb"


class OperatorTimes(NamedTuple):
    """Seconds by rows (per layer; ``embedding`` per step), by (rows, start), by (decodes, context).

    The context of a decode is what it finds: its own position is not counted.
    """

    linear: Curve
    prefill_attention: Surface
    decode_attention: Surface
    cache_writes: Curve | None = None
    embedding: Curve | None = None


class OperatorTable(Table):
    """A model of ``layers`` layers from the times of its operators."""

    def __init__(self, times: OperatorTimes, layers: int, overhead_s: float = 0.0) -> None:
        self.times = times
        self.layers = layers
        self.overhead_s = overhead_s
        self.parts = _parts(times)
        self._rows_s = Remembered(self._of_rows)

    @classmethod
    def read(
        cls,
        mlp_csv: Path | str,
        attention_csv: Path | str,
        *,
        layers: int,
        tensor_parallel: int = 1,
        overhead_s: float = 0.0,
        where: Mapping[str, int | str] | None = None,
    ) -> "OperatorTable":
        """Read both files; ``where`` chooses the model in files of several (``n_embd`` etc.).

        Raises ``ProfileError`` naming file, line and column of what is wrong.
        """
        _require_settings(layers, overhead_s)
        where, paths = where or {}, (mlp_csv, attention_csv)
        tables = map(Measurements.read, paths)
        mlp, attention = (_of_one_model(table, tensor_parallel, where) for table in tables)
        _require_same_model(mlp, attention, where)
        times = OperatorTimes(
            _linear(mlp),
            _prefill_attention(attention),
            _decode_attention(attention),
            _cache_writes(attention),
            _embedding(mlp),
        )
        return cls(times, layers, overhead_s)

    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        """Return the seconds of ``steps`` repetitions, each with the growing decodes one longer."""
        attention_s = self._prefill_s(shape) + self._decode_s(shape, steps)
        return self._rows_s[shape.rows] + self.layers * attention_s

    def levels(self, steps: StepColumns) -> LevelArray:
        """Return those of all operators, the least sure of each step."""
        decodes, context, chunks, chunk_rows, chunk_start = steps
        times = self.times
        by_rows = [t for t in (times.linear, times.cache_writes, times.embedding) if t is not None]
        rows = decodes + chunks * chunk_rows
        prefill = times.prefill_attention.levels(chunk_rows, chunk_start)
        mean_context = context / np.maximum(decodes, 1) - 1
        decode = times.decode_attention.levels(decodes, mean_context)
        return worst(
            *(curve.levels(rows) for curve in by_rows),
            np.where(chunks > 0, prefill, 0),
            np.where(decodes > 0, decode, 0),
        )

    def _prefill_s(self, shape: BatchShape) -> float:
        section = self.times.prefill_attention.section
        chunks = shape.prefill_chunks
        return float(sum(section(n)(np.array([float(start)]))[0] for start, n in chunks))

    def _decode_s(self, shape: BatchShape, steps: int) -> FloatArray:
        decodes = shape.decode_sequences
        if not decodes:
            return np.zeros(steps)
        context = shape.decode_context_tokens + shape.decode_growing * np.arange(steps)
        return self.times.decode_attention.section(decodes)(context / decodes - 1)

    def _of_rows(self, rows: int) -> float:
        """Return the seconds that depend on the number of rows alone."""
        at = np.array([float(rows)])
        times = self.times
        layer_s = times.linear(at)[0]
        layer_s += times.cache_writes(at)[0] if times.cache_writes else 0.0
        embedding_s = times.embedding(at)[0] if times.embedding else 0.0
        return float(self.overhead_s + self.layers * layer_s + embedding_s)


def _parts(times: OperatorTimes) -> dict[str, TablePart]:
    parts = {
        "products and norms": TablePart(("rows",), times.linear),
        "prefill attention": TablePart(("chunk rows", "chunk start"), times.prefill_attention),
        "decode attention": TablePart(("decodes", "context"), times.decode_attention),
    }
    for name, curve in (("cache writes", times.cache_writes), ("embedding", times.embedding)):
        if curve is not None:
            parts[name] = TablePart(("rows",), curve, minor=True)
    return parts


def _require_settings(layers: int, overhead_s: float) -> None:
    if layers < 1:
        raise ProfileError(f"layers: {layers}; an operator table needs at least 1")
    if not 0 <= overhead_s < np.inf:
        raise ProfileError(f"overhead_s: {overhead_s}; it must be finite and at least 0")


def _of_one_model(
    table: Measurements, tensor_parallel: int, where: Mapping[str, int | str]
) -> Measurements:
    table = table.only(_TENSOR_PARALLEL, tensor_parallel)
    for column in (*_MODEL, *(name for name in where if name not in _MODEL)):
        if column in table:
            table = table.only(column, where.get(column))
    return table


def _require_same_model(
    mlp: Measurements, attention: Measurements, where: Mapping[str, int | str]
) -> None:
    for column in where:
        if column not in mlp and column not in attention:
            raise ProfileError(f"where: no column {column!r} in {mlp.path} or {attention.path}")
    for column in _MODEL:
        if column in mlp and column in attention:
            attention.only(column, mlp.value(column))


def _column(operator: str) -> str:
    return f"time_stats.{operator}.median"


def _operators(table: Measurements) -> list[str]:
    """Return the operators that a table has times of."""
    columns = [name for name in table.frame.columns if name.startswith("time_stats.")]
    medians = [name for name in columns if name.endswith(".median") and not table.is_blank(name)]
    return [name.removeprefix("time_stats.").removesuffix(".median") for name in medians]


def _total_s(table: Measurements, operators: list[str]) -> "pd.Series[float]":
    times_s = (table.times_s(_column(name)) for name in operators)
    return sum(times_s, pd.Series(0.0, index=table.frame.index))


def _linear(mlp: Measurements) -> Curve:
    operators = {*_NEEDED, *_operators(mlp)} - {_EMBEDDING}
    rows, times_s = points(_total_s(mlp, sorted(operators)), mlp.counts("num_tokens", 1))
    require_unit(str(mlp.path), times_s, "ms")
    require_rising(mlp.path, _column("*"), times_s, num_tokens=rows)
    return Curve(rows, times_s)


def _embedding(mlp: Measurements) -> Curve | None:
    if _EMBEDDING not in _operators(mlp):
        return None
    return Curve(*points(mlp.times_s(_column(_EMBEDDING)), mlp.counts("num_tokens", 1)))


def _prefill_attention(attention: Measurements) -> Surface:
    chunk = attention.counts("prefill_chunk_size")
    prefill = attention.chosen(chunk > 0)
    _require_rows(prefill, "no prefill rows: prefill_chunk_size above 0")
    prefill = prefill.only("batch_size", 1)
    return _attention(prefill, _PREFILL, "prefill_chunk_size")


def _decode_attention(attention: Measurements) -> Surface:
    decode = attention.chosen(attention.counts("prefill_chunk_size") == 0)
    _require_rows(decode, "no decode rows: prefill_chunk_size 0")
    return _attention(decode, _DECODE, "batch_size")


def _attention(rows: Measurements, operator: str, size: str) -> Surface:
    """Return the times of an operator by ``size`` and by the context that it finds."""
    column, context = _column(operator), "kv_cache_size"
    places = points(rows.times_s(column), rows.counts(size, 1), rows.counts(context))
    require_rising(rows.path, column, places[-1], **{size: places[0], context: places[1]})
    return Surface(*places)


def _cache_writes(attention: Measurements) -> Curve | None:
    """Return the other times of attention.csv, by the rows of a chunk, or one row per decode."""
    others = [name for name in _operators(attention) if name not in (_PREFILL, _DECODE)]
    if not others:
        return None
    rows = attention.counts("prefill_chunk_size").clip(lower=attention.counts("batch_size", 1))
    return Curve(*points(_total_s(attention, others), rows))


def _require_rows(table: Measurements, problem: str) -> None:
    if not len(table):
        raise ProfileError(f"{table.path}: {problem}; profile prefill and decode attention both")
