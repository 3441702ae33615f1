"""The interface between the simulator and a model of step times."""

from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from policies.batch import BatchShape

FloatArray: TypeAlias = npt.NDArray[np.float64]


class StepTime(Protocol):
    """The duration of a batch on some engine.

    A model that needs the context of every decode, and not only their sum, has an attribute
    ``wants_contexts = True``; one that needs the longest, ``wants_longest = True``.
    """

    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        """Return the durations of ``steps`` repetitions, each with growing decodes one longer."""
