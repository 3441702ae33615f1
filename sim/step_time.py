"""How long a batch takes: the protocol, the features, and the model that a calibration fits.

Step time is a sum of non-negative parts, each with a cause one can point at::

    t =   constant                            scheduling, sampling, messages, kernel launches
        + a_d * decodes + a_p * chunks        attention calls, gathers, one chunk to send, each
        + sum_i b_i * rows in segment i       matrix work; the slope changes at the knots: below
                                              the knee weights are read anyway, above it compute
        + c_d * decode context                keys and values read by the decodes
        + c_p * prefill pairs                 query-key pairs inside the prefill chunks
        + c_g * prefill context               earlier positions gathered for the chunks

Every part grows with its feature, so the model is monotone and extrapolates sanely.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from policies.batch import BatchShape

FloatArray = npt.NDArray[np.float64]

ROW_KNOTS = (0, 2, 4, 6, 7, 8, 12, 16, 24, 32, 64, 128, 512)
"""Rows at which the per-row slope may change; the last segment is open."""

FEATURES = (
    "constant",
    "decode_sequences",
    "prefill_chunks",
    *(f"rows_from_{knot}" for knot in ROW_KNOTS),
    "decode_context_tokens",
    "prefill_pairs",
    "prefill_context_tokens",
)


class StepTime(Protocol):
    """How long a batch takes on some engine."""

    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        """Durations of ``steps`` repetitions, each with the growing decodes one longer."""


def features(shape: BatchShape) -> list[float]:
    """The values of ``FEATURES`` for one batch."""
    rows = shape.rows
    segments = [
        float(max(0, min(rows, end) - start))
        for start, end in zip(ROW_KNOTS, (*ROW_KNOTS[1:], rows), strict=True)
    ]
    pairs = sum(n * start + n * (n + 1) / 2 for start, n in shape.prefill_chunks)
    context = sum(start for start, _ in shape.prefill_chunks)
    return [
        1.0,
        float(shape.decode_sequences),
        float(len(shape.prefill_chunks)),
        *segments,
        float(shape.decode_context_tokens),
        float(pairs),
        float(context),
    ]


@dataclass(frozen=True, slots=True)
class LinearStepTime:
    """Seconds per unit of each feature (``FEATURES``, in that order)."""

    coefficients: tuple[float, ...]

    @classmethod
    def of(cls, by_name: Mapping[str, float]) -> "LinearStepTime":
        """From coefficients by feature name; a feature that is not named costs nothing."""
        unknown = set(by_name) - set(FEATURES)
        if unknown:
            raise ValueError(f"unknown features {sorted(unknown)}; known are {FEATURES}")
        return cls(tuple(by_name.get(name, 0.0) for name in FEATURES))

    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        """Affine in the context, so ``steps`` repetitions are an arithmetic series."""
        values = zip(self.coefficients, features(shape), strict=True)
        first = float(sum(coefficient * value for coefficient, value in values))
        if steps == 1:
            return np.array([first])
        slope = self.coefficients[FEATURES.index("decode_context_tokens")] * shape.decode_growing
        return first + slope * np.arange(steps, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class ApiLatency:
    """What the HTTP process adds to a request, in seconds.

    ``request_s``: from the client's send to the scheduler's queue, and ``request_per_token_s`` of
    it for every prompt token; ``chunk_s``: from the end of a step to the chunk at the client, and
    ``chunk_per_sequence_s`` of it for every sequence of the step.
    """

    request_s: float = 0.0
    request_per_token_s: float = 0.0
    chunk_s: float = 0.0
    chunk_per_sequence_s: float = 0.0

    def request_in_s(self, prompt_tokens: int) -> float:
        """Seconds until the scheduler has the request."""
        return self.request_s + self.request_per_token_s * prompt_tokens

    def chunk_out_s(self, sequences: int) -> float:
        """Seconds until the client has a token of a step with ``sequences`` sequences."""
        return self.chunk_s + self.chunk_per_sequence_s * sequences


class StepNoise:
    """Random factors on step durations, one per step index, the same however steps are run."""

    _CHUNK = 4096

    def __init__(self, factors: FloatArray, rng: np.random.Generator) -> None:
        self._sample = factors
        self._rng = rng
        self._drawn = np.empty(0)

    def factors(self, first_step: int, steps: int) -> FloatArray:
        """Factors of steps ``first_step .. first_step + steps - 1``."""
        while len(self._drawn) < first_step + steps:
            self._drawn = np.append(self._drawn, self._rng.choice(self._sample, self._CHUNK))
        return self._drawn[first_step : first_step + steps]
