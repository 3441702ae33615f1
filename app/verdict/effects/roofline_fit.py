"""Fit a roofline to the step times of a calibrated engine, so that its parts are known.

A calibration knows how long a batch takes, not how much of that reads weights, reads keys and
values, multiplies, or is overhead. A roofline of the same model on the measured peaks of the
machine has these parts; what is achieved of the peaks is fitted so that both agree on batches of
the size that was measured. Each bootstrap draw of the calibration gets a fit of its own, to batches
drawn anew: where a roofline does not have the form of the engine, the fits differ, and so do the
effects that are predicted from them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from servetwin.policies.batch import BatchShape
from servetwin.sim.step_times.protocol import FloatArray, StepTime
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.efficiency import Efficiency, fit_efficiency
from servetwin.sim.step_times.roofline.step_time import roofline_step_time

_DECODES = (1, 2, 4, 8, 16, 32)
_CONTEXTS = (32, 128, 512)
_CHUNKS = (8, 32, 64, 128, 256, 512)
_KNEES = (1.0, 8.0)
_LEAST = 1e-3
_MOST_COMPUTE = 4.0
"""Of torch's matrix rate: some kernels are faster."""
_MEMORY = (0.85, 1.5)
"""Of the measured bandwidth. The engine reads the weights of one row about as fast as memory
allows, faster only from a cache: what a step takes beyond that is overhead. Without these bounds a
calibration cannot tell the two apart.
"""

_ATTENTION = (0.02, 2.0)
"""Of what matrix products reach: softmax and small matrices are slow on a CPU."""


def fitted_shapes(ranges: Mapping[str, float], max_seqs: int) -> list[BatchShape]:
    """Return batches of decodes, of a prompt, and of both, within what was measured."""
    rows = sum(value for name, value in ranges.items() if name.startswith("rows_from_"))
    context = ranges.get("decode_context_tokens", 0.0)
    decodes = [
        BatchShape(n, n * length, n, (), decode_contexts=(length,) * n)
        for n in _DECODES
        for length in _CONTEXTS
        if n <= max_seqs and n * length <= (context or n * length)
    ]
    chunks = [n for n in _CHUNKS if n <= (rows or n)]
    prompts = [BatchShape(0, 0, 0, ((0, n),)) for n in chunks]
    mixed = [
        shape._replace(prefill_chunks=((0, n),))
        for shape in decodes[::3]
        for n in chunks[::2]
        if shape.decode_sequences + n <= (rows or n)
    ]
    return decodes + prompts + mixed


def fit_calibration(
    deployment: Deployment,
    times: StepTime,
    shapes: Sequence[BatchShape],
    start: Efficiency | None = None,
) -> Efficiency:
    """Return what ``deployment`` must achieve of its peaks to take the ``times`` of a calibration.

    Compute and memory shares, the overhead of a step, the knee, and what attention reaches beside
    matrix products. ``start`` is a fit nearby, which makes this one quick.
    """
    measured_s = np.array([float(times.seconds(shape)[0]) for shape in shapes])
    shortest_s = float(measured_s.min())

    def seconds(efficiency: Efficiency) -> FloatArray:
        model = roofline_step_time(replace(deployment, efficiency=efficiency))
        return np.array([float(model.seconds(shape)[0]) for shape in shapes])

    least = Efficiency(_LEAST, _MEMORY[0], 0.0, _KNEES[0], attention=_ATTENTION[0])
    most = Efficiency(_MOST_COMPUTE, _MEMORY[1], shortest_s, _KNEES[1], attention=_ATTENTION[1])
    starts = [start or Efficiency(overhead_s=0.3 * shortest_s)]
    return fit_efficiency(seconds, measured_s, (least, most), starts, smooth=0.02, evaluations=40)
