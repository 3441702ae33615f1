"""The error of a prediction by the number of requests in flight when a request arrived."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from servetwin.sim.step_times.step_time import FloatArray

BANDS = 5
_DRAWS = 400
_COLUMNS = ["least", "most", "requests", "measured_s", "error", "low", "high", "noise"]


def error_by_band(
    predicted: pd.DataFrame, measured: Sequence[pd.DataFrame], metric: str, bands: int = BANDS
) -> pd.DataFrame:
    """Return the relative error of the mean of ``metric`` in bands of about as many requests each.

    Requests of a band found ``least`` to ``most`` others in flight as they arrived, on average
    over the measured runs. ``low`` and ``high`` are the 90 % interval of the error by a bootstrap
    over the band's requests, ``noise`` is (max - min) / mean of the band's means in the measured
    runs, undefined for a single one. Only requests that finished everywhere count.
    """
    joined = _joined(predicted, measured, metric)
    if joined.empty:
        return pd.DataFrame(columns=_COLUMNS, dtype=float)
    groups = [group for _, group in joined.groupby(_bands(joined["in_flight"], bands))]
    rng = np.random.default_rng(0)
    return pd.DataFrame([_row(group, len(measured), rng) for group in groups], columns=_COLUMNS)


def in_flight(requests: pd.DataFrame) -> FloatArray:
    """Return how many others were scheduled and not done when each request was scheduled."""
    done = requests["last_token_s"].notna()
    comes_s = np.sort(requests.loc[done, "scheduled_s"].to_numpy(float))
    goes_s = np.sort(requests.loc[done, "last_token_s"].to_numpy(float))
    at_s = requests["scheduled_s"].to_numpy(float)
    here = np.searchsorted(comes_s, at_s, "right") - np.searchsorted(goes_s, at_s, "right")
    return np.asarray(here - done.to_numpy(float), dtype=np.float64)


def _joined(predicted: pd.DataFrame, measured: Sequence[pd.DataFrame], metric: str) -> pd.DataFrame:
    """Return by request ``predicted``, a column per measured run, and ``in_flight`` on average."""
    columns = [_finished(predicted, metric).rename("predicted")]
    loads = []
    for number, frame in enumerate(measured):
        columns.append(_finished(frame, metric).rename(f"measured {number}"))
        loads.append(pd.Series(in_flight(frame), index=frame["request_id"]))
    load = pd.concat(loads, axis=1).mean(axis=1).rename("in_flight")
    return pd.concat([*columns, load], axis=1, join="inner").dropna()


def _finished(requests: pd.DataFrame, metric: str) -> pd.Series:
    done = requests[requests["status"] == "finished"]
    values: pd.Series = done.set_index("request_id")[metric]
    return values


def _bands(load: pd.Series, bands: int) -> npt.NDArray[np.int64]:
    """Return the band of each request; equal loads are in the same band."""
    edges = np.unique(np.quantile(load, np.arange(1, bands) / bands))
    return np.searchsorted(edges, load.to_numpy(float))


def _row(group: pd.DataFrame, repeats: int, rng: np.random.Generator) -> tuple[float, ...]:
    runs = group[[f"measured {number}" for number in range(repeats)]]
    predicted = group["predicted"].to_numpy(float)
    measured = runs.mean(axis=1).to_numpy(float)
    places = rng.integers(len(group), size=(_DRAWS, len(group)))
    errors = predicted[places].sum(axis=1) / measured[places].sum(axis=1) - 1
    low, high = np.quantile(errors, (0.05, 0.95))
    means = runs.mean()
    noise = (means.max() - means.min()) / means.mean() if repeats > 1 else np.nan
    load = group["in_flight"]
    return (
        float(load.min()), float(load.max()), len(group), float(measured.mean()),
        float(predicted.sum() / measured.sum() - 1), float(low), float(high), float(noise),
    )  # fmt: skip
