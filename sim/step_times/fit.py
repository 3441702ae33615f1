"""Fit the step-time model to measured steps: non-negative, robust, and with uncertainty.

Least absolute *relative* deviations by iteratively reweighted non-negative least squares: a step
that the machine disturbed has no more weight than any other. The uncertainty comes from a bootstrap
over steps. The simulator draws one of its fits: normal draws, clipped at zero, would lengthen every
step. The remaining noise (disturbed steps included) is kept as quantiles of measured / fitted, from
which the simulator draws.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from policies.batch import BatchShape
from sim.step_times.step_time import FEATURES, FloatArray, features
from workloads.errors import ProfileError

IntArray = npt.NDArray[np.int64]
NOISE_QUANTILES = 200
_ROUNDS = 12
_BOOTSTRAPS = 40
_CLIP = 20.0


@dataclass(frozen=True, slots=True)
class StepSample:
    """One measured step: its shape, its duration, and the calibration round it belongs to."""

    shape: BatchShape
    seconds: float
    round: int = 0


@dataclass(frozen=True, slots=True)
class Fit:
    """Coefficients (s per unit of ``FEATURES``), their uncertainty, and the remaining noise.

    ``draws`` [bootstraps, features] are fits to resampled steps, ``covariance`` is theirs.

    ``noise`` are ``NOISE_QUANTILES`` quantiles of measured / fitted, ``drift`` the relative
    standard deviation of whole calibration rounds, ``held_out_error`` the median absolute relative
    error on steps that were left out of a second fit, ``ranges`` the largest value of each feature.
    """

    coefficients: FloatArray
    covariance: FloatArray
    draws: FloatArray
    noise: FloatArray
    drift: float
    held_out_error: float
    ranges: dict[str, float]
    steps: int


def fit_step_time(samples: list[StepSample], seed: int = 0) -> Fit:
    """Fit ``samples`` (at least twice as many as features).

    Raises ``ProfileError`` if there are too few.
    """
    matrix = np.array([features(sample.shape) for sample in samples])
    seconds = np.array([sample.seconds for sample in samples])
    return fit_rows(matrix, seconds, np.array([sample.round for sample in samples]), seed)


def fit_rows(matrix: FloatArray, seconds: FloatArray, rounds: IntArray, seed: int = 0) -> Fit:
    """Fit ``seconds`` to rows of features (``FEATURES`` first, others may follow).

    Raises ``ProfileError`` if there are fewer than two rows per feature of the model.
    """
    if len(seconds) < 2 * len(FEATURES):
        raise ProfileError(
            f"{len(seconds)} measured steps are too few to fit {len(FEATURES)} features; measure "
            f"at least {2 * len(FEATURES)}"
        )
    rng = np.random.default_rng(seed)
    coefficients = _robust_nnls(matrix, seconds)
    draws = _bootstrap(matrix, seconds, rng)
    ratios = seconds / (matrix @ coefficients)
    return Fit(
        coefficients=coefficients,
        covariance=np.cov(draws, rowvar=False),
        draws=draws,
        noise=noise_quantiles(ratios),
        drift=_drift(ratios, rounds),
        held_out_error=_held_out_error(matrix, seconds, rng),
        ranges=dict(zip(FEATURES, matrix.max(axis=0).tolist(), strict=False)),
        steps=len(seconds),
    )


def fit_line(points: list[tuple[int, float]]) -> tuple[float, float]:
    """Return the non-negative constant and slope of least absolute deviations from (x, y)."""
    if not points:
        return 0.0, 0.0
    x, y = np.array(points, dtype=np.float64).T
    constant, slope = _least_deviations(np.column_stack([np.ones_like(x), x]), y, 1e-5).tolist()
    return constant, slope


def _robust_nnls(matrix: FloatArray, seconds: FloatArray) -> FloatArray:
    scale = matrix.max(axis=0)
    scale[scale == 0] = 1.0
    relative = matrix / scale / seconds[:, None]
    solution: FloatArray = _least_deviations(relative, np.ones(len(seconds)), 0.01) / scale
    return solution


def _least_deviations(matrix: FloatArray, target: FloatArray, least: float) -> FloatArray:
    """Fit by least absolute deviations; those below ``least`` count as squares."""
    from scipy.optimize import nnls

    weights, solution = np.ones(len(target)), np.zeros(matrix.shape[1])
    for _ in range(_ROUNDS):
        root = np.sqrt(weights)
        solution, _ = nnls(matrix * root[:, None], target * root)
        weights = 1 / np.maximum(np.abs(matrix @ solution - target), least)
    return np.asarray(solution, dtype=np.float64)


def _bootstrap(matrix: FloatArray, seconds: FloatArray, rng: np.random.Generator) -> FloatArray:
    count = len(seconds)
    resampled = (rng.integers(count, size=count) for _ in range(_BOOTSTRAPS))
    return np.array([_robust_nnls(matrix[rows], seconds[rows]) for rows in resampled])


def noise_quantiles(ratios: FloatArray) -> FloatArray:
    """Return mid-point quantiles, scaled to keep the mean; ratios are clipped at ``_CLIP``."""
    ratios = np.clip(ratios, 0.0, _CLIP)
    points = np.quantile(ratios, (np.arange(NOISE_QUANTILES) + 0.5) / NOISE_QUANTILES)
    return np.asarray(points * ratios.mean() / points.mean(), dtype=np.float64)


def _drift(ratios: FloatArray, rounds: IntArray) -> float:
    medians = [float(np.median(ratios[rounds == number])) for number in np.unique(rounds)]
    return float(np.std(medians, ddof=1)) if len(medians) > 1 else 0.0


def _held_out_error(matrix: FloatArray, seconds: FloatArray, rng: np.random.Generator) -> float:
    held_out = rng.random(len(seconds)) < 0.25
    fitted = matrix[held_out] @ _robust_nnls(matrix[~held_out], seconds[~held_out])
    return float(np.median(np.abs(fitted / seconds[held_out] - 1)))
