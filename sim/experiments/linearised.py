"""Any step-time model as coefficients by feature: the prior of a fit, or a profile of its own."""

from collections.abc import Iterator, Sequence

import numpy as np

from servetwin.policies.batch import BatchShape
from servetwin.sim.step_times.step_time import LinearStepTime, StepTime

_DECODES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 192, 256)
_CONTEXTS = (64, 256, 1024, 4096)
_CHUNKS: tuple[tuple[tuple[int, int], ...], ...] = (
    (),
    ((0, 64),),
    ((0, 256),),
    ((0, 512), (0, 512)),
    ((0, 1024),),
    ((2048, 512),),
    ((0, 2048),),
)


def linearised(model: StepTime, features: Sequence[str]) -> dict[str, float]:
    """Return the coefficients, in seconds, with which a sum of features is nearest to a model.

    Nearest in relative terms, over batches of up to 256 decodes and 2,048 rows of prompts; none is
    negative.
    """
    from scipy.optimize import nnls

    shapes = list(_shapes())
    seconds = np.array([float(model.seconds(shape)[0]) for shape in shapes])
    nothing = dict.fromkeys(features, 0.0)  # keeps the knots of all rows
    units = [LinearStepTime.of({**nothing, name: 1.0}) for name in features]
    matrix = np.array([[float(unit.seconds(shape)[0]) for unit in units] for shape in shapes])
    scale = matrix.max(axis=0)
    scale[scale == 0] = 1.0
    found, _ = nnls(matrix / scale / seconds[:, None], np.ones(len(shapes)))
    return dict(zip(features, (found / scale).tolist(), strict=True))


def _shapes() -> Iterator[BatchShape]:
    for chunks in _CHUNKS:
        for decodes in _DECODES:
            for context in _CONTEXTS:
                if decodes or chunks:
                    yield BatchShape(
                        decodes,
                        decodes * context,
                        decodes,
                        chunks,
                        decode_contexts=(context,) * decodes,
                        longest_context=context if decodes else 0,
                    )
