"""Fit the step-time model to measured steps: non-negative, robust, and with uncertainty.

Least absolute *relative* deviations by iteratively reweighted non-negative least squares: a step
that the machine disturbed has no more weight than any other. The uncertainty comes from a bootstrap
over whole bursts. The simulator draws one of its fits: normal draws, clipped at zero, would
lengthen every step. The remaining noise (disturbed steps included) is kept as quantiles of measured
/ fitted, from which the simulator draws. A step counts by its duration there: a pause of some
milliseconds is a large share of a small step and must not stretch the large ones by as much.

``batch_pairs``, which grows faster than the batch, is fitted only where steps that were left out
are predicted clearly better with it: few engines have it, and a little of it by chance would grow
large in large batches.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from servetwin.policies.batch import BatchShape
from servetwin.sim.step_times.machine_speed import BoolArray, slowdown
from servetwin.sim.step_times.step_time import BATCH_PAIRS, FEATURES, FloatArray, features
from servetwin.workloads.errors import ProfileError

IntArray = npt.NDArray[np.int64]
NOISE_QUANTILES = 200
_ROUNDS = 12
_BOOTSTRAPS = 40
_CLIP = 20.0
_HELD_OUT = 0.25
_LEAST_BURSTS = 8
_LEAST_PAIRS = 100
_MOST_CORRELATION = 0.95
# The share of the held-out error without a feature that must not be passed with it.
_CLEARLY_BETTER = 0.9


@dataclass(frozen=True, slots=True)
class StepSample:
    """One measured step: its shape, its duration, and the calibration round and burst it is of.

    ``at_s`` is when it began, on the clock of the log, ``beat_s`` the mean reference beat around it
    (NaN: not known), ``switches`` how often another program took the core from it. ``in_load``: it
    served a load like the one to predict, and no burst.
    """

    shape: BatchShape
    seconds: float
    round: int = 0
    burst: int = 0
    at_s: float = 0.0
    beat_s: float = math.nan
    switches: int = 0
    in_load: bool = False


@dataclass(frozen=True, slots=True)
class Fit:
    """Coefficients (s per unit of ``FEATURES``), their uncertainty, and the remaining noise.

    ``draws`` [bootstraps, features] are fits to resampled bursts.

    ``noise`` are ``NOISE_QUANTILES`` quantiles of measured / fitted, ``noise_correlation`` is that
    of the normal scores of neighbouring steps of a burst, ``drift`` the relative
    standard deviation of whole calibration rounds, ``held_out_error`` the median absolute relative
    error on bursts that were left out of a second fit, ``ranges`` the largest value of each
    feature.
    """

    coefficients: FloatArray
    draws: FloatArray
    noise: FloatArray
    noise_correlation: float
    drift: float
    held_out_error: float
    ranges: dict[str, float]
    steps: int


def fit_step_time(samples: list[StepSample], seed: int = 0) -> Fit:
    """Fit ``samples`` (at least twice as many as features).

    Raises ``ProfileError`` if there are too few. Where every step has its beat (``in_beats``), the
    coefficients carry the whole measured time, and the noise has mean 1: what disturbed the machine
    disturbed the beats as well. A core that another program had comes back with cold caches: one
    more column takes what each such switch costs, which is no part of the model.
    """
    switches = [sample.switches for sample in samples]
    matrix = np.column_stack([[features(sample.shape) for sample in samples], switches])
    seconds = np.array([sample.seconds for sample in samples])
    rounds = np.array([sample.round for sample in samples])
    fit = fit_rows(matrix, seconds, rounds, seed, np.array([sample.burst for sample in samples]))
    if not math.isnan(samples[0].beat_s):
        fit = _with_totals(fit, samples, matrix)
    width = len(FEATURES)  # further columns are no part of the model
    return replace(fit, coefficients=fit.coefficients[:width], draws=fit.draws[:, :width])


def in_beats(samples: Sequence[StepSample]) -> tuple[list[StepSample], float | None]:
    """Return the samples as those of a machine of constant speed, and the mean beat on it (s).

    Steps without beats around them are left out. As they are, and None, where no step has any.
    """
    timed = [sample for sample in samples if not math.isnan(sample.beat_s)]
    if not timed:
        return [*samples], None
    weights = [sample.seconds for sample in timed]
    mean_s = float(np.average([sample.beat_s for sample in timed], weights=weights))
    beats = np.array([sample.beat_s / mean_s for sample in timed])
    by = slowdown(beats, _have_chunks(timed)).tolist()
    return [replace(one, seconds=one.seconds / n) for one, n in zip(timed, by, strict=True)], mean_s


def _have_chunks(samples: Sequence[StepSample]) -> BoolArray:
    return np.array([bool(sample.shape.prefill_chunks) for sample in samples])


def _with_totals(fit: Fit, samples: Sequence[StepSample], matrix: FloatArray) -> Fit:
    """Return a fit that has the total time of decodes, and that of steps with chunks, right.

    These are the totals of the loads, where there are some: a forecast meets loads. Deviations of
    a robust fit have other means in each kind of step; each coefficient changes by the least
    relative amount that makes both right.
    """
    counts = np.array([sample.in_load for sample in samples])
    counts |= not counts.any()
    chunks = _have_chunks(samples)
    seconds = np.array([sample.seconds for sample in samples])
    kinds = [rows for rows in (counts & ~chunks, counts & chunks) if rows.any()]
    terms = np.array([matrix[rows].sum(axis=0) * fit.coefficients for rows in kinds])
    missing_s = np.array([seconds[rows].sum() for rows in kinds]) - terms.sum(axis=1)
    terms[:, len(FEATURES) :] = 0.0
    scale = terms.sum(axis=1, keepdims=True)
    change = 1 + np.linalg.lstsq(terms / scale, missing_s / scale[:, 0], rcond=None)[0]
    draws = change * fit.draws
    return replace(
        fit, coefficients=change * fit.coefficients, draws=draws, noise=fit.noise / fit.noise.mean()
    )


def fit_rows(
    matrix: FloatArray, seconds: FloatArray, rounds: IntArray, seed: int = 0,
    bursts: IntArray | None = None,
) -> Fit:  # fmt: skip
    """Fit ``seconds`` to rows of features (``FEATURES`` first, others may follow).

    The rows of a burst share what disturbed the machine at that time: they are drawn again, or held
    out, together. Without ``bursts`` every row stands for itself. Raises ``ProfileError`` if there
    are fewer than two rows per feature of the model.
    """
    if len(seconds) < 2 * len(FEATURES):
        raise ProfileError(
            f"{len(seconds)} measured steps are too few to fit {len(FEATURES)} features; measure "
            f"at least {2 * len(FEATURES)}"
        )
    rng = np.random.default_rng(seed)
    groups, largest = _groups(bursts, len(seconds)), matrix.max(axis=0)
    if not _needs_batch_pairs(matrix, seconds, groups, seed):
        matrix = _without_batch_pairs(matrix)
    coefficients = robust_nnls(matrix, seconds)
    draws = _bootstrap(matrix, seconds, groups, rng)
    errors = _held_out_errors(matrix, seconds, groups, rng)
    ratios = seconds / (matrix @ coefficients)
    return Fit(
        coefficients=coefficients, draws=draws,
        noise=noise_quantiles(ratios, matrix @ coefficients),
        noise_correlation=_lag_correlation(ratios, groups), drift=_drift(ratios, rounds),
        held_out_error=float(np.median(errors)) if len(errors) else 0.0,
        ranges=dict(zip(FEATURES, largest.tolist(), strict=False)), steps=len(seconds),
    )  # fmt: skip


def fit_line(points: list[tuple[int, float]]) -> tuple[float, float]:
    """Return the non-negative constant and slope of least absolute deviations from (x, y)."""
    if not points:
        return 0.0, 0.0
    x, y = np.array(points, dtype=np.float64).T
    constant, slope = _least_deviations(np.column_stack([np.ones_like(x), x]), y, 1e-5).tolist()
    return constant, slope


def robust_nnls(matrix: FloatArray, seconds: FloatArray, rounds: int = _ROUNDS) -> FloatArray:
    """Return non-negative coefficients by least absolute relative deviations.

    One round is least squares; each further one weighs large deviations less.
    """
    scale = matrix.max(axis=0)
    scale[scale == 0] = 1.0
    relative = matrix / scale / seconds[:, None]
    solution: FloatArray = _least_deviations(relative, np.ones(len(seconds)), 0.01, rounds) / scale
    return solution


def _least_deviations(
    matrix: FloatArray, target: FloatArray, least: float, rounds: int = _ROUNDS
) -> FloatArray:
    """Fit by least absolute deviations; those below ``least`` count as squares."""
    from scipy.optimize import nnls

    weights, solution = np.ones(len(target)), np.zeros(matrix.shape[1])
    for _ in range(rounds):
        root = np.sqrt(weights)
        solution, _ = nnls(matrix * root[:, None], target * root)
        weights = 1 / np.maximum(np.abs(matrix @ solution - target), least)
    return np.asarray(solution, dtype=np.float64)


def _groups(bursts: IntArray | None, count: int) -> list[IntArray]:
    """Return the rows of each burst; each row alone where there are too few bursts to draw from."""
    if bursts is None or len(np.unique(bursts)) < _LEAST_BURSTS:
        return [np.array([row]) for row in range(count)]
    return [np.flatnonzero(bursts == burst) for burst in np.unique(bursts)]


def _bootstrap(
    matrix: FloatArray, seconds: FloatArray, groups: list[IntArray], rng: np.random.Generator
) -> FloatArray:
    fits = []
    for _ in range(_BOOTSTRAPS):
        numbers = rng.integers(len(groups), size=len(groups))
        rows = np.concatenate([groups[number] for number in numbers])
        fits.append(robust_nnls(matrix[rows], seconds[rows]))
    return np.array(fits)


def noise_quantiles(ratios: FloatArray, fitted_s: FloatArray) -> FloatArray:
    """Return mid-point quantiles of ``ratios``, each weighted by its fitted duration (s).

    Their mean is the total of the measured over that of the fitted durations. Ratios are clipped at
    ``_CLIP``.
    """
    order = np.argsort(ratios)
    sorted_ratios, weights = np.clip(ratios[order], 0.0, _CLIP), fitted_s[order]
    ranks = (np.cumsum(weights) - weights / 2) / weights.sum()
    points = np.interp((np.arange(NOISE_QUANTILES) + 0.5) / NOISE_QUANTILES, ranks, sorted_ratios)
    return np.asarray(points * np.average(sorted_ratios, weights=weights) / points.mean())


def _lag_correlation(ratios: FloatArray, groups: list[IntArray]) -> float:
    """Return the correlation of the normal scores of neighbouring steps of a burst, at least 0."""
    from scipy.special import ndtri

    scores = ndtri((ratios.argsort().argsort() + 0.5) / len(ratios))
    pairs = [(scores[rows[:-1]], scores[rows[1:]]) for rows in groups if len(rows) > 1]
    if not pairs:
        return 0.0
    before, after = (np.concatenate(side) for side in zip(*pairs, strict=True))
    if len(before) < _LEAST_PAIRS:
        return 0.0
    return float(np.clip(np.corrcoef(before, after)[0, 1], 0.0, _MOST_CORRELATION))


def _drift(ratios: FloatArray, rounds: IntArray) -> float:
    medians = [float(np.median(ratios[rounds == number])) for number in np.unique(rounds)]
    return float(np.std(medians, ddof=1)) if len(medians) > 1 else 0.0


def _without_batch_pairs(matrix: FloatArray) -> FloatArray:
    plain = matrix.copy()
    plain[:, BATCH_PAIRS] = 0.0
    return plain


def _needs_batch_pairs(
    matrix: FloatArray, seconds: FloatArray, groups: list[IntArray], seed: int
) -> bool:
    """Return whether steps of bursts that were left out are predicted clearly better with it."""
    errors = [
        np.minimum(_held_out_errors(tried, seconds, groups, np.random.default_rng(seed)), 1.0)
        for tried in (matrix, _without_batch_pairs(matrix))
    ]
    return bool(errors[0].sum() < _CLEARLY_BETTER * errors[1].sum())


def _held_out_errors(
    matrix: FloatArray, seconds: FloatArray, groups: list[IntArray], rng: np.random.Generator
) -> FloatArray:
    """Return the absolute relative error of each row of bursts that a fit left out."""
    held_out = np.zeros(len(seconds), dtype=bool)
    for rows, chance in zip(groups, rng.random(len(groups)), strict=True):
        held_out[rows] = chance < _HELD_OUT
    if held_out.all() or not held_out.any():
        return np.empty(0)
    fitted = matrix[held_out] @ robust_nnls(matrix[~held_out], seconds[~held_out])
    return np.asarray(np.abs(fitted / seconds[held_out] - 1), dtype=np.float64)
