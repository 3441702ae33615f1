"""The coefficients that come nearest to a model of step times."""

from collections.abc import Sequence
from itertools import product

import numpy as np

from servetwin.policies.batch import BatchShape
from servetwin.sim.step_times.fit import robust_nnls
from servetwin.sim.step_times.step_time import FloatArray, LinearStepTime, StepTime

Chunks = tuple[tuple[int, int], ...]


def _seconds(model: StepTime, shapes: list[BatchShape]) -> FloatArray:
    return np.array([float(model.seconds(shape)[0]) for shape in shapes])


_DECODES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 192, 256)
_CONTEXTS = (64, 256, 1024, 4096)
_CHUNKS: tuple[Chunks, ...] = (
    (), ((0, 64),), ((0, 256),), ((0, 512), (0, 512)), ((0, 1024),), ((2048, 512),), ((0, 2048),),
)  # fmt: skip


def linearised(model: StepTime, features: Sequence[str]) -> dict[str, float]:
    """Return the coefficients, in seconds, with which a sum of features is nearest to a model.

    Nearest in relative terms, over batches of up to 256 decodes and 2,048 rows of prompts; none is
    negative.
    """
    shapes = [
        BatchShape(
            decodes,
            decodes * context,
            decodes,
            chunks,
            decode_contexts=(context,) * decodes,
            longest_context=context if decodes else 0,
        )
        for chunks, decodes, context in product(_CHUNKS, _DECODES, _CONTEXTS)
        if decodes or chunks
    ]
    nothing = dict.fromkeys(features, 0.0)  # keeps the knots of all rows
    units = [LinearStepTime.of({**nothing, name: 1.0}) for name in features]
    matrix = np.array([_seconds(unit, shapes) for unit in units]).T
    coefficients = robust_nnls(np.ascontiguousarray(matrix), _seconds(model, shapes), rounds=1)
    return dict(zip(features, coefficients.tolist(), strict=True))
