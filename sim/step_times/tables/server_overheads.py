"""The overheads that a server adds to its kernels; no table of measured times has them.

A step takes its time by the table, and::

    step_s + sequence_s * sequences         scheduling, sampling, messages, launches between steps
    + prefill_step_s                        in a step with chunks of prompts: their inputs are built
    + prefill_chunk_s * chunks              on the host, and such steps run without a captured
    + prefill_row_s * rows of chunks        graph; once, by the chunk, by their length

No more than ``most_chunks`` chunks of a step count: a flood of tiny prompts shares what was
measured of a few long ones. The kernels themselves take ``factor`` times what the table says.

A request takes ``request_s`` + ``prompt_token_s`` * its prompt (HTTP, tokenisation, a message)
until the scheduler has it, and a token ``chunk_s`` from the end of its step to the client
(``ApiLatency``).

The terms are fitted, or your own: none is a law of physics. Host time that an asynchronous
scheduler hides behind the kernels is in no term: a fit finds what is left of it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from servetwin.policies.batch import BatchShape
from servetwin.sim.catalogue.versions import version_numbers
from servetwin.sim.records.columns import Columns
from servetwin.sim.step_times.piecewise import Piece, PiecewiseStepTime
from servetwin.sim.step_times.profile import ApiLatencyFit
from servetwin.sim.step_times.provenance import Origin
from servetwin.sim.step_times.step_time import UNIT_S, FloatArray, to_units
from servetwin.sim.step_times.tables.interpolate import HeldOutError, LevelArray
from servetwin.sim.step_times.tables.kernel_table import KernelTable
from servetwin.sim.step_times.tables.layer_table import LayerTable
from servetwin.sim.step_times.tables.table import StepColumns, Table
from servetwin.workloads.errors import ProfileError, require_name
from servetwin.workloads.program.key_values import key_values
from servetwin.workloads.program.package import shipped_json

OPTION = "--overheads"
GIVEN = "given"
FITTED = "fitted"

_SHIPPED = shipped_json("sim/catalogue/overheads.json")
# The largest plausible value of each term; more than that is not a host but a mistake.
MOST_S: dict[str, float] = _SHIPPED["most_s"]
# The least and the largest value of each term.
RANGES: dict[str, tuple[float, float]] = {
    **{name: (0.0, most_s) for name, most_s in MOST_S.items()},
    "factor": (0.3, 3.0),
    "most_chunks": (1.0, math.inf),
}
_NOTHING_S = 1e-12
_OF_STEPS = ("step_s", "sequence_s", "prefill_step_s", "prefill_chunk_s", "prefill_row_s")


@dataclass(frozen=True, slots=True)
class ServerOverheads:
    """Overheads of a server, in seconds; ``source`` says where they come from.

    Raises ``ProfileError`` for a term that is no number, negative, or beyond ``MOST_S``.
    """

    step_s: float = 0.0
    sequence_s: float = 0.0
    prefill_step_s: float = 0.0
    prefill_chunk_s: float = 0.0
    prefill_row_s: float = 0.0
    request_s: float = 0.0
    prompt_token_s: float = 0.0
    chunk_s: float = 0.0
    factor: float = 1.0
    most_chunks: float = math.inf
    source: str = GIVEN

    def __post_init__(self) -> None:
        for name, (least, most) in RANGES.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise ProfileError(
                    f"{OPTION}: {name}: {value:g} is not possible; it must be {_range(name)}"
                )

    def api(self) -> ApiLatencyFit:
        """Return the terms of requests and tokens as the latency of the HTTP process."""
        return ApiLatencyFit(
            request_s=self.request_s, request_per_token_s=self.prompt_token_s, chunk_s=self.chunk_s
        )

    @property
    def origin(self) -> Origin:
        """Others' measurements for fitted terms; not stated for yours."""
        return "not stated" if self.source == GIVEN else "measured by others"

    def seconds_of_rows(self, steps: Columns) -> FloatArray:
        """Return the seconds that they add to all steps of each row of ``Run.steps``."""
        decodes, chunks = steps["decode_sequences"], steps["prefill_chunks"]
        each_s = self.step_s + self.sequence_s * (decodes + chunks)
        counted = np.minimum(chunks, self.most_chunks)
        with_chunks_s = self.prefill_step_s + self.prefill_chunk_s * counted
        with_chunks_s = with_chunks_s + self.prefill_row_s * (steps["rows"] - decodes)
        seconds = (each_s + with_chunks_s * (chunks > 0)) * steps["steps"]
        return np.asarray(seconds, dtype=np.float64)

    def as_text(self) -> str:
        """Return the terms that differ from none, as ``parse_overheads`` reads them."""
        values = {name: getattr(self, name) for name in RANGES}
        none = ServerOverheads()
        return ",".join(
            f"{name}={value:.5g}"
            for name, value in values.items()
            if value != getattr(none, name) and value > _NOTHING_S
        )

    def described(self) -> str:
        """Return the terms that are not nothing, with their source, as one line."""
        values = {name: getattr(self, name) for name in MOST_S}
        terms = [f"{name} {1e3 * s:.3g} ms" for name, s in values.items() if s > _NOTHING_S]
        terms += [f"factor {self.factor:.3g}"] if self.factor != 1 else []
        terms += [f"most_chunks {self.most_chunks:g}"] if math.isfinite(self.most_chunks) else []
        return f"overheads: {', '.join(terms) or 'none'} ({self.source})"


def parse_overheads(text: str, backend: str | None, version: str | None = None) -> ServerOverheads:
    """Return the overheads that ``fitted`` or ``NAME=VALUE,...`` (in seconds) stands for.

    ``version`` of the server chooses among the fits of its backend.

    Raises ``ProfileError`` that names the term, its value and what would be right.
    """
    if text == FITTED:
        return fitted_overheads(backend, version)
    given = key_values(text, OPTION, ProfileError, form=f"{FITTED} or NAME=VALUE")
    return overheads_of(given)


def overheads_of(terms: Mapping[str, Any], source: str = GIVEN) -> ServerOverheads:
    """Return the overheads with ``terms`` by name, as numbers or text.

    Raises ``ProfileError`` for an unknown name, or a value that is no number.
    """
    values = {}
    for name, value in terms.items():
        require_name(name, sorted(RANGES), f"{OPTION}: no term", ProfileError)
        try:
            values[name] = float(value)
        except (TypeError, ValueError):
            raise ProfileError(
                f"{OPTION}: {name}: {value!r} is not a number; it must be {_range(name)}"
            ) from None
    return ServerOverheads(**values, source=source)


def _range(name: str) -> str:
    """Return which values a term may have, in words."""
    least, most = RANGES[name]
    if math.isinf(most):
        return f"{least:g} or more"
    return f"{least:g} to {most:g}{' seconds' if name in MOST_S else ''}"


def fitted_overheads(backend: str | None, version: str | None = None) -> ServerOverheads:
    """Return the shipped overheads of a backend (``sim/catalogue/overheads.json``).

    Of several fits (oldest first) that of the version, else of the nearest ones below it, else the
    oldest. The source says of which versions it is, and how far those of other versions may lie.

    Raises ``ProfileError`` for a backend without any.
    """
    fits = [fit for fit in _SHIPPED["fits"] if fit["backend"] == backend]
    if not fits:
        there = ", ".join(dict.fromkeys(fit["backend"] for fit in _SHIPPED["fits"]))
        raise ProfileError(
            f"{OPTION} {FITTED}: none were fitted for {backend or 'tables without a backend'}; "
            f"there are some for --times kernels:{there}; or give NAME=VALUE,... of "
            f"{', '.join(MOST_S)}"
        )
    wanted = version_numbers(version)
    below = [fit for fit in fits if version_numbers(fit["versions"][0]) <= wanted]
    fit = below[-1] if below else fits[0]
    first, last = fit["versions"]
    source = f"{_SHIPPED['source']}: {backend} {first} to {last}; {_moves(fit['backend'])}"
    if version and not version_numbers(first) <= wanted[:2] <= version_numbers(last):
        source += f"; the server is {version}"
    return overheads_of(fit["terms"], source)


def _moves(backend: str) -> str:
    """Return how far two versions of a server lie apart, on one deployment under one load."""
    moves = _SHIPPED["moves"][backend]
    ttft, tpot = (
        f"{name.upper()} {100 / (1 + moves[name]) - 100:+.0f} to {100 * moves[name]:+.0f} %"
        for name in ("ttft", "tpot")
    )
    return f"another version moves {ttft}, {tpot} (9 in 10 of {moves['pairs']} pairs)"


class LoadedTable(PiecewiseStepTime, Table):
    """Steps of ``table`` and the overheads of each, all times ``factor``.

    Overheads do not depend on the context, so a run of steps keeps the pieces of the table.
    """

    def __init__(
        self, table: KernelTable | LayerTable, overheads: ServerOverheads, factor: float = 1.0
    ) -> None:
        self._given = table
        self.table = table if overheads.factor == 1 else table.scaled(overheads.factor)
        self.overheads, self.factor = overheads, factor
        self.parts, self.origin = table.parts, table.origin
        self.wants_longest = getattr(table, "wants_longest", False)
        self._terms = [to_units(factor * getattr(overheads, name)) for name in _OF_STEPS]

    def scaled(self, factor: float) -> "LoadedTable":
        """Return a model that takes ``factor`` times as long, its overheads too."""
        return LoadedTable(self._given.scaled(factor), self.overheads, self.factor * factor)

    def piece(self, shape: BatchShape, step: int = 0) -> Piece:
        """Return the piece of the table, with the overheads in each of its steps."""
        first, slope, steps = self.table.piece(shape, step)
        return Piece(first + self._added(shape), slope, steps)

    def group_seconds(self, shapes: Sequence[BatchShape], steps: int = 1) -> FloatArray:
        """Return the durations of the table, with the overheads of the slowest host."""
        return self.table.group_seconds(shapes, steps) + max(map(self._added, shapes)) * UNIT_S

    def _added(self, shape: BatchShape) -> int:
        """Return the units of the overheads of a step."""
        step, sequence, prefill, chunk, row = self._terms
        chunks = shape.prefill_chunks
        units = step + sequence * (shape.decode_sequences + len(chunks))
        if chunks:
            counted = int(min(len(chunks), self.overheads.most_chunks))
            units += prefill + chunk * counted + row * sum(rows for _, rows in chunks)
        return units

    def row_origins(self, steps: Columns) -> dict[Origin, FloatArray]:
        """Return the shares of the table and of the overheads, where these have another origin."""
        if self.overheads.origin == self.origin:
            return super().row_origins(steps)
        lasted_s = steps["end_s"] - steps["start_s"]
        added_s = self.factor * self.overheads.seconds_of_rows(steps)
        share = np.clip(added_s / np.where(lasted_s > 0, lasted_s, np.inf), 0.0, 1.0)
        return {self.origin: 1 - share, self.overheads.origin: share}

    def log_deviation(self) -> float:
        """Return the deviation of the table."""
        return self.table.log_deviation()

    def held_out_errors(self, seed: int = 0) -> dict[str, HeldOutError | None]:
        """Return the errors of the table."""
        return self.table.held_out_errors(seed)

    def summary(self, seed: int = 0) -> list[str]:
        """Return the lines of the table, and one of the overheads."""
        return [*self.table.summary(seed), self.overheads.described()]

    def levels(self, steps: StepColumns) -> LevelArray:
        """Return the levels of the table."""
        return self.table.levels(steps)
