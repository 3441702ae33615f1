"""A table as the server of a scenario, as ``sim.step_times.profile.Profile`` is for fits."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd

from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import KVLayout
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.origin import Origin
from servetwin.sim.step_times.profile import ApiLatencyFit
from servetwin.sim.step_times.provenance import Excess, Provenance
from servetwin.sim.step_times.step_time import NO_NOISE, FloatArray, NoiseSample, StepTime
from servetwin.sim.step_times.tables.interpolate import LEVELS
from servetwin.sim.step_times.tables.table import Table
from servetwin.workloads.errors import ProfileError


class TableFit:
    """A table's step times, and how sure they are.

    An error of interpolation is the same in every step, so it is drawn once a replication, not once
    a step.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.log_deviation = table.log_deviation()

    def model(self) -> StepTime:
        """Return the table as it is."""
        return self.table

    def drawn(self, rng: np.random.Generator) -> StepTime:
        """Return the table times a lognormal factor as large as the held-out error."""
        return self.table.scaled(float(rng.lognormal(0.0, self.log_deviation)))

    def noise_factors(self) -> NoiseSample:
        """Return 1: a table has medians, no noise."""
        return NO_NOISE

    def is_certain(self) -> bool:
        """Return whether every draw is the same: the table is too small to tell its error."""
        return not self.log_deviation


@dataclass(frozen=True, slots=True)
class TableSource:
    """What a run rests on: each row of steps is judged at its middle, its chunks as equal."""

    profile: str
    table: Table

    def row_shares(self, steps: pd.DataFrame) -> dict[Provenance, FloatArray]:
        """Return the share of each kind in every row, all of it being of the kind of its middle."""
        decodes, chunks = (steps[n].to_numpy(float) for n in ("decode_sequences", "prefill_chunks"))
        context = steps["decode_context_tokens"] + decodes * (steps["steps"] - 1) / 2
        rows, starts = _chunks(steps, chunks)
        kinds = self.table.provenance(decodes, context, chunks, rows, starts)
        return {kind: (kinds == kind).astype(float) for kind in LEVELS}

    def row_origins(self, steps: pd.DataFrame) -> dict[Origin, FloatArray]:
        """Return the share of the time of each row, by origin."""
        return self.table.row_origins(steps)

    def excesses(self, steps: pd.DataFrame) -> list[Excess]:
        """Return the axes that some step goes beyond."""
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
    """Return (rows, start) of a chunk of each row, from the rows and pairs of all its chunks."""
    count = np.maximum(1.0, chunks)
    rows = (steps["rows"] - steps["decode_sequences"]).to_numpy(float) / count
    pairs = steps["prefill_pairs"].to_numpy(float) / count
    before = pairs / np.maximum(1.0, rows) - (rows + 1) / 2
    return rows, np.maximum(0.0, np.rint(before))


def _reached(steps: pd.DataFrame) -> dict[str, float]:
    """Return the largest value along the axes of tables; context is the mean of a decode."""
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


@dataclass(frozen=True)
class TableProfile:
    """Servers whose steps take as long as ``table`` says, under ``policies``.

    ``kv_bytes`` of one token's keys and values are needed to move them over a link. Tables do not
    say how keys and values are laid out: every layout takes as long. ``device`` is what they were
    measured on, where that is known, and ``devices`` how many of it make one server.
    """

    name: str
    table: Table
    policies: PolicyConfig
    kv_bytes: float | None = None
    api: ApiLatencyFit = field(default_factory=ApiLatencyFit)
    device: str = ""
    devices: int = 1

    def step_time(self, layout: KVLayout) -> TableFit:
        """Return the same fit for every layout."""
        return self._fit

    @cached_property
    def _fit(self) -> TableFit:
        return TableFit(self.table)

    @property
    def acceptance(self) -> None:
        """No table knows of drafts."""

    @property
    def origin(self) -> Origin:
        """The origin of the table."""
        return self.table.origin

    def is_certain(self) -> bool:
        """Return whether every draw of it is the same."""
        return self._fit.is_certain()

    def source(self, layout: KVLayout) -> TableSource:
        """Return the source of its step times."""
        return TableSource(self.name, self.table)

    def describe(self) -> list[str]:
        """Return its name, and its parts with their held-out errors."""
        return [
            f"table profile {self.name} ({self.origin})",
            *(f"  {line}" for line in self.table.summary()),
        ]

    def check(self, run: Run, replica: int) -> None:
        """Accept every run: measured times have no bound to break."""

    def policy_config(self) -> PolicyConfig:
        """Return the policies of the profile."""
        return self.policies

    def kv_bytes_per_token(self) -> float:
        """Return the bytes of the keys and values of one token.

        Raises ``ProfileError`` when the profile does not say.
        """
        if self.kv_bytes is None:
            raise ProfileError(
                f"profile {self.name}: kv_bytes of a token are needed to move keys and values "
                "over a link"
            )
        return self.kv_bytes
