"""Fit the step-time model to what clients saw of a server, and the time before a first token.

Intervals between tokens that clients observed are sums of steps, and the model is linear in its
features, so an interval is one row of the same fit. Two more columns stand for
what precedes a first token: the latency of the API, and the wait of a static batch to fill. Single
prompts cannot separate the constant latency of the API from the constant cost of a prefill chunk;
prompts that join decodes, and several prompts in one step, separate them as far as possible.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from servetwin.sim.step_times.black_box_steps import ObservedRequest, StepInterval, observed_steps
from servetwin.sim.step_times.fit import Fit, fit_line, fit_rows, noise_quantiles
from servetwin.sim.step_times.step_time import FEATURES, ROW_KNOTS, FloatArray, features

# An interval below this share of the median is two reads of the client, not a step.
LEAST_SHARE = 0.1
_ROWS_FROM = FEATURES.index("rows_from_0")
_ROWS = slice(_ROWS_FROM, _ROWS_FROM + len(ROW_KNOTS))


@dataclass(frozen=True, slots=True)
class BlackBoxFit:
    """The fit, and the time before the first token of an idle server beside its steps (seconds).

    ``wait_s`` is the time a static batch waits to fill; ``chunk_per_sequence_s`` is what each
    sequence of a step adds to the mean delay of its tokens.
    """

    fit: Fit
    first_token_s: float
    wait_s: float
    chunk_per_sequence_s: float


def fit_black_box(
    rounds: Sequence[Sequence[StepInterval]], chunk_per_sequence_s: float = 0.0, seed: int = 0
) -> BlackBoxFit:
    """Fit the intervals of all calibration rounds; the noise is that of single decode steps.

    Its mean is 1: two reads of the client make one step short and its neighbour long, and both
    count. Raises ``ProfileError`` if there are too few.
    """
    numbered = [
        (number, interval) for number, intervals in enumerate(rounds) for interval in intervals
    ]
    usual_s = float(np.median([interval.seconds for _, interval in numbered])) if numbered else 0.0
    decodes = [interval for _, interval in numbered if _is_decode_step(interval)]
    numbered = [n for n in numbered if n[1].seconds > LEAST_SHARE * usual_s]
    intervals = [interval for _, interval in numbered]
    matrix = np.array([interval.row() for interval in intervals]).reshape(-1, len(FEATURES) + 2)
    seconds = np.array([interval.seconds for interval in intervals])
    fit = fit_rows(matrix, seconds, np.array([number for number, _ in numbered]), seed)
    width = len(FEATURES)
    first_token_s, wait_s = fit.coefficients[width:].tolist()
    steps = np.array([features(shape) for interval in intervals for shape in interval.shapes])
    ranges = steps.max(axis=0)
    fitted_s = np.array([one.row() for one in decodes]).reshape(-1, width + 2) @ fit.coefficients
    ratios = np.array([one.seconds for one in decodes]) / fitted_s
    draws = np.array([_extended(draw[:width], ranges) for draw in fit.draws])
    noise = noise_quantiles(ratios, fitted_s) if decodes else fit.noise
    mean = float(noise.mean())  # which the coefficients hold
    stripped = replace(
        fit, coefficients=mean * _extended(fit.coefficients[:width], ranges), draws=mean * draws,
        noise=noise / mean, ranges=dict(zip(FEATURES, ranges.tolist(), strict=True)),
        steps=len(steps),
    )  # fmt: skip
    return BlackBoxFit(stripped, first_token_s, wait_s, chunk_per_sequence_s)


def chunk_spread_s(bursts: Sequence[Sequence[ObservedRequest]]) -> float:
    """Return the seconds that each sequence of a step adds to the mean delay of its tokens."""
    points = [
        (len(step.stamps_s) - 1, step.end_s - min(step.stamps_s.values()))
        for answers in bursts
        for step in observed_steps(answers)
    ]
    return fit_line(points)[1]


def _is_decode_step(interval: StepInterval) -> bool:
    return not interval.first_token and not any(s.prefill_chunks for s in interval.shapes)


def _extended(coefficients: FloatArray, ranges: FloatArray) -> FloatArray:
    """Give rows beyond the measured maximum the mean cost of the upper half of the range."""
    extended, widths = coefficients.copy(), ranges[_ROWS]
    most = int(widths.sum())
    rows, costs = (np.append(0.0, np.cumsum(w)) for w in (widths, coefficients[_ROWS] * widths))
    cost = np.interp([most / 2, most], rows, costs)
    extended[_ROWS][widths == 0] = (cost[1] - cost[0]) / (most / 2)
    return extended
