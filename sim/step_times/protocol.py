"""The interface between the simulator and a model of step times."""

from collections.abc import Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from servetwin.policies.batch import Batch, BatchShape, Totals

FloatArray: TypeAlias = npt.NDArray[np.float64]


class StepTime(Protocol):
    """The duration of a batch on some engine.

    A model that needs the context of every decode, and not only their sum, has an attribute
    ``wants_contexts = True``; one that needs the longest, ``wants_longest = True``.
    """

    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        """Return the durations of ``steps`` repetitions, each with growing decodes one longer."""


@runtime_checkable
class SingleSteps(Protocol):
    """A model that also knows the duration of one step from the sums of its batch."""

    def step_s(self, totals: Totals, swapped: int) -> float:
        """Return the first of ``seconds`` to the last bit, for a batch without drafts.

        ``swapped`` positions move between device and host before the step.
        """


@runtime_checkable
class GroupStepTime(Protocol):
    """A model of ranks that share their experts, and so step together."""

    def group_seconds(self, shapes: Sequence[BatchShape], steps: int = 1) -> FloatArray:
        """Return the durations of ``steps`` repetitions, with the batch of each rank.

        A rank without work has an empty shape: it computes a dummy row.
        """


@runtime_checkable
class PassUnits(Protocol):
    """A model that knows the durations of a run of passes that verify drafts."""

    unit_bits: int
    """The bits by which a unit is longer than a tick."""

    def pass_units(self, batch: Batch, steps: int) -> list[int]:
        """Return the units of each of the next passes of a batch with ``drafted`` decodes."""
