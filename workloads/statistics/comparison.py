"""Is a trace, such as a synthetic one, like a reference? One check per statistic, with its limits.

Distributions are compared by the Kolmogorov-Smirnov distance, never by its p-value: at ten thousand
rows every p-value is 0. The limits are those that halves of one real trace keep among themselves.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import inf, sqrt
from typing import Any, Literal

import numpy as np

from servetwin.workloads.statistics.statistics import (
    DISPERSION_WINDOWS_S,
    FloatArray,
    session_samples,
    statistics,
)
from servetwin.workloads.trace import Trace

Measure = Literal["KS", "ratio", "difference"]

RESAMPLED_KS, FITTED_KS, SESSION_KS = 0.05, 0.10, 0.10
BURSTY_CV = 3.0
MANY_TIES = 0.2
# An index of dispersion over fewer windows says little.
MIN_WINDOWS = 50


@dataclass(frozen=True, slots=True)
class Check:
    """One statistic of both traces, how far they are apart, and how far they may be.

    ``value`` and ``reference`` are medians where distributions are compared. ``passes`` is None
    where the check does not apply; ``note`` then says why.
    """

    name: str
    measure: Measure
    value: float | None
    reference: float | None
    apart: float | None
    low: float
    high: float
    note: str = ""

    @property
    def passes(self) -> bool | None:
        """Whether ``apart`` lies within the limits."""
        return None if self.apart is None else self.low <= self.apart <= self.high

    def as_dict(self) -> dict[str, Any]:
        """Return the check for JSON."""
        return {**asdict(self), "passes": self.passes}


def compare(trace: Trace, reference: Trace, resampled: bool = False) -> list[Check]:
    """Run all checks of a trace against a reference.

    ``resampled`` says that lengths were drawn from the reference itself: they must be closer.
    """
    ours, theirs = statistics(trace), statistics(reference)
    length_ks = RESAMPLED_KS if resampled else FITTED_KS
    return [
        *_lengths(trace, reference, length_ks),
        _difference("rank correlation", ours["spearman_rho"], theirs["spearman_rho"], 0.05),
        *_arrivals(ours, theirs),
        *_prefixes(ours["prefix"], theirs["prefix"], _block_note(trace, reference)),
        *_sessions(trace, reference),
    ]


def ks_distance(left: FloatArray, right: FloatArray) -> float | None:
    """Return the largest vertical distance between both empirical distribution functions."""
    if not (len(left) and len(right)):
        return None
    values = np.concatenate([left, right])
    shares = [np.searchsorted(np.sort(one), values, "right") / len(one) for one in (left, right)]
    return float(np.abs(shares[0] - shares[1]).max())


def _lengths(trace: Trace, reference: Trace, limit: float) -> Iterator[Check]:
    for name in ("prompt_tokens", "output_tokens"):
        ours, theirs = (np.array([getattr(r, name) for r in one]) for one in (trace, reference))
        yield _ks(name.replace("_", " "), ours, theirs, limit)


def _arrivals(ours: dict[str, Any], theirs: dict[str, Any]) -> Iterator[Check]:
    slack = _rate_slack(theirs, ours["rows"])
    yield _ratio("rate /s", ours["rate_per_s"], theirs["rate_per_s"], 1 - slack, 1 + slack)
    tied = max(ours["ties"] or 0, theirs["ties"] or 0) > MANY_TIES
    note = f"ties above {MANY_TIES:.0%}" if tied else ""
    for name, label in (("cv_iat", "CV of gaps"), ("local_cv", "local CV of gaps")):
        limits = (0.9, 1.1) if (theirs[name] or 0) <= BURSTY_CV else (0.75, 1.3)
        yield _ratio(label, ours[name], theirs[name], *limits, note)
    span_s = min(ours["span_s"], theirs["span_s"])
    for window_s in DISPERSION_WINDOWS_S:
        key = f"idc_{window_s}s"
        few = f"under {MIN_WINDOWS} windows" if span_s < MIN_WINDOWS * window_s else ""
        why = few or (note if window_s == 1 else "")
        yield _ratio(f"dispersion over {window_s} s", ours[key], theirs[key], 0.7, 1.4, why)


def _rate_slack(reference: dict[str, Any], rows: int) -> float:
    """Return three standard errors of a rate: 3 sqrt(IDC / n), IDC at the longest window of use."""
    known = [
        reference[f"idc_{window_s}s"]
        for window_s in DISPERSION_WINDOWS_S
        if reference["span_s"] >= MIN_WINDOWS * window_s
    ]
    return 3 * sqrt((known[-1] if known else 1.0) / rows) if rows else inf


def _prefixes(
    ours: dict[str, Any] | None, theirs: dict[str, Any] | None, note: str
) -> Iterator[Check]:
    if ours is None or theirs is None:
        return
    for (cache, mine, limit), (_, other, _) in zip(_caches(ours), _caches(theirs), strict=True):
        for unit in ("block", "token"):
            label, name = f"hits per {unit}, {cache}", f"hit_per_{unit}"
            yield _difference(label, mine[name], other[name], limit, note)
    for label, name in _REUSE.items():
        yield _difference(label, ours[name], theirs[name], 0.05, note)


def _caches(figures: dict[str, Any]) -> Iterator[tuple[str, dict[str, float], float]]:
    """Yield the name of each cache, its hits, and how far those may differ."""
    yield "ideal", figures, 0.01
    yield from ((f"ideal {factor}", hits, 0.03) for factor, hits in figures["coarser"].items())
    yield from ((f"LRU {share}", hits, 0.03) for share, hits in figures["lru"].items())


_REUSE = {"blocks ever reused": "reused_blocks", "reuse by top 1 % of blocks": "top_1%_reuse"}


def _sessions(trace: Trace, reference: Trace) -> Iterator[Check]:
    ours, theirs = session_samples(trace), session_samples(reference)
    if len(ours.turns) and len(theirs.turns):
        yield _ks("turns per session", ours.turns, theirs.turns, SESSION_KS)
        yield _ks("gap between turns s", ours.gaps_s, theirs.gaps_s, SESSION_KS)
        yield _ks("fresh tokens per turn", ours.fresh_tokens, theirs.fresh_tokens, SESSION_KS)


def _ks(name: str, ours: FloatArray, theirs: FloatArray, limit: float) -> Check:
    distance = ks_distance(ours, theirs)
    medians = _median(ours), _median(theirs)
    return Check(name, "KS", *medians, distance, 0.0, limit, _why(distance))


def _ratio(
    name: str, value: float | None, reference: float | None, low: float, high: float, note: str = ""
) -> Check:
    apart = value / reference if value is not None and reference and not note else None
    return Check(name, "ratio", value, reference, apart, low, high, note or _why(apart))


def _difference(
    name: str, value: float | None, reference: float | None, limit: float, note: str = ""
) -> Check:
    apart = None if value is None or reference is None or note else value - reference
    return Check(name, "difference", value, reference, apart, -limit, limit, note or _why(apart))


def _why(apart: float | None) -> str:
    return "undefined" if apart is None else ""


def _median(values: FloatArray) -> float | None:
    return float(np.median(values)) if len(values) else None


def _block_note(trace: Trace, reference: Trace) -> str:
    both = (trace, reference)
    ours, theirs = ({r.block_tokens for r in one if r.prefix_block_ids} for one in both)
    return "" if ours == theirs else "block sizes differ"
