"""The step times that the fit of a profile gives."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from servetwin.policies.batch import BatchShape
from servetwin.sim.step_times.profile import StepTimeFit
from servetwin.sim.step_times.provenance import MeasuredRange

_POINTS = 60
# Curves go on to this many times what was measured.
_BEYOND = 1.5
_UNMEASURED_SEQUENCES, _UNMEASURED_TOKENS = 64, 2048


def decode_curve(fit: StepTimeFit) -> pd.DataFrame:
    """Return steps of decodes alone over their number, at the mean context of the calibration."""
    most = fit.ranges.get("decode_sequences", _UNMEASURED_SEQUENCES)
    context = fit.ranges.get("decode_context_tokens", 512.0 * most) / most
    sizes = _sizes(fit, most)
    shapes = [BatchShape(int(n), int(context * n), int(n)) for n in sizes]
    return _curve(fit, sizes, shapes)


def prompt_curve(fit: StepTimeFit) -> pd.DataFrame:
    """Return steps of one prompt alone over its tokens."""
    most = _most_rows(fit)
    sizes = _sizes(fit, most)
    shapes = [BatchShape(0, 0, 0, ((0, int(n)),)) for n in sizes]
    return _curve(fit, sizes, shapes)


def _sizes(fit: StepTimeFit, most: float) -> list[int]:
    end = most * (_BEYOND if fit.ranges else 1.0)
    return sorted({round(size) for size in np.linspace(1, end, _POINTS).tolist()})


def _most_rows(fit: StepTimeFit) -> float:
    """Return the longest prompt whose rows and pairs were both measured."""
    largest = MeasuredRange.of(fit.ranges)
    if not np.isfinite(largest.rows):
        return _UNMEASURED_TOKENS
    by_pairs = (np.sqrt(8 * largest.prefill_pairs + 1) - 1) / 2
    return float(min(largest.rows, by_pairs))


def _curve(fit: StepTimeFit, sizes: list[int], shapes: list[BatchShape]) -> pd.DataFrame:
    model, noise = fit.model(), fit.noise_factors().factors
    seconds = np.array([float(model.seconds(shape)[0]) for shape in shapes])
    low, high = np.quantile(noise, (0.05, 0.95))
    measured = [_is_measured(shape, fit.ranges) for shape in shapes]
    return pd.DataFrame(
        {
            "x": sizes, "seconds": seconds, "low_s": low * seconds, "high_s": high * seconds,
            "measured": measured,
        }
    )  # fmt: skip


def _is_measured(shape: BatchShape, ranges: Mapping[str, float]) -> bool:
    largest = MeasuredRange.of(ranges)
    pairs = sum(n * start + n * (n + 1) / 2 for start, n in shape.prefill_chunks)
    return bool(
        shape.decode_sequences <= largest.decode_sequences
        and shape.decode_context_tokens <= largest.decode_context_tokens
        and shape.rows <= largest.rows
        and pairs <= largest.prefill_pairs
    )
