"""A table as a scenario's server: what ``sim.step_times.profile.Profile`` is to a calibration."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from policies.batch import BatchShape
from policies.config import PolicyConfig
from policies.protocols import KVLayout
from sim.records.run import Run
from sim.step_times.profile import ApiLatencyFit
from sim.step_times.step_time import FloatArray, StepTime
from sim.step_times.tables.table import Table
from sim.step_times.tables.table_source import TableSource
from workloads.errors import ProfileError


@dataclass(frozen=True, slots=True)
class ScaledTable:
    """A step-time model, ``factor`` times as slow."""

    table: StepTime
    factor: float

    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        """Durations of ``steps`` repetitions."""
        return self.factor * self.table.seconds(shape, steps)


class TableFit:
    """A table's step times, and how sure they are.

    An error of interpolation is the same in every step, so it is drawn once a replication, not once
    a step.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.log_deviation = table.log_deviation()

    def model(self) -> StepTime:
        """The table as it is."""
        return self.table

    def drawn(self, rng: np.random.Generator) -> StepTime:
        """The table times a lognormal factor of the held-out error's size."""
        return ScaledTable(self.table, float(rng.lognormal(0.0, self.log_deviation)))

    def noise_factors(self) -> FloatArray:
        """None: tables have medians."""
        return np.array([1.0])

    def is_certain(self) -> bool:
        """Whether every draw is the same: the table is too small to tell its error."""
        return not self.log_deviation


@dataclass(frozen=True)
class TableProfile:
    """Servers whose steps take as long as ``table`` says, under ``policies``.

    ``kv_bytes`` of one token's keys and values are needed to move them over a link. Tables do not
    say how keys and values are laid out: every layout takes as long.
    """

    name: str
    table: Table
    policies: PolicyConfig
    kv_bytes: float | None = None
    api: ApiLatencyFit = field(default_factory=ApiLatencyFit)

    def step_time(self, layout: KVLayout) -> TableFit:
        """The same for every layout."""
        return self._fit

    @cached_property
    def _fit(self) -> TableFit:
        return TableFit(self.table)

    @property
    def acceptance(self) -> None:
        """No table knows of drafts."""

    def is_certain(self) -> bool:
        """Whether every draw of it is the same."""
        return self._fit.is_certain()

    def source(self, layout: KVLayout) -> TableSource:
        """What its step times rest on."""
        return TableSource(self.name, self.table)

    def describe(self) -> list[str]:
        """Its name, and its parts with their held-out errors."""
        return [f"table profile {self.name}", *(f"  {line}" for line in self.table.summary())]

    def check(self, run: Run, replica: int) -> None:
        """What was measured has no bound but itself."""

    def policy_config(self) -> PolicyConfig:
        """The policies to begin with."""
        return self.policies

    def kv_bytes_per_token(self) -> float:
        """Size of the keys and values of one token.

        Raises ``ProfileError`` when the profile does not say.
        """
        if self.kv_bytes is None:
            raise ProfileError(
                f"profile {self.name}: kv_bytes of a token are needed to move keys and values "
                "over a link"
            )
        return self.kv_bytes
