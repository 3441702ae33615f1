"""What simulated time rests on: where the estimate of each step's duration comes from.

============  =================================================================================
measured      a table has that very step
interpolated  no feature of the step is larger than the largest that was measured
extrapolated  some feature is
roofline      a formula; nobody measured
============  =================================================================================

Shares are of the servers' busy time, from the steps that a run kept: nothing is noted while it
runs. A row of many steps is their durations' equal parts, each with the context that it had.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from math import inf
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import pandas as pd

from policies.protocols import KVLayout
from sim.step_times.step_time import FloatArray

Provenance = Literal["measured", "interpolated", "extrapolated", "roofline"]


@dataclass(frozen=True, slots=True)
class MeasuredRange:
    """The largest value of each feature that a calibration saw; infinite where it does not say."""

    decode_sequences: float = inf
    prefill_chunks: float = inf
    rows: float = inf
    decode_context_tokens: float = inf
    prefill_pairs: float = inf
    prefill_context_tokens: float = inf

    @classmethod
    def of(cls, ranges: Mapping[str, float]) -> "MeasuredRange":
        """From ``Fit.ranges``: the most rows fill every segment as far as it was filled."""
        segments = [value for name, value in ranges.items() if name.startswith("rows_from_")]
        features = {field.name for field in fields(cls)} & ranges.keys()
        most = {name: ranges[name] for name in features}
        return cls(**{**most, "rows": sum(segments) if segments else inf})


@dataclass(frozen=True, slots=True)
class Excess:
    """A feature of a run that went up to ``value``, where ``profile`` knows it to ``measured``.

    ``feature`` is the name of a field of ``MeasuredRange``.
    """

    profile: str
    feature: str
    value: float
    measured: float


class Source(Protocol):
    """What a step-time model rests on, judged over rows of ``Run.steps``."""

    def row_shares(self, steps: pd.DataFrame) -> dict[Provenance, FloatArray]:
        """The part of each row's steps of each kind; the parts of a row sum to 1."""

    def excesses(self, steps: pd.DataFrame) -> list[Excess]:
        """The features that left what was measured, and how far they came."""


@dataclass(frozen=True, slots=True)
class Formula:
    """A computed model: all of it is a formula."""

    def row_shares(self, steps: pd.DataFrame) -> dict[Provenance, FloatArray]:
        """All roofline."""
        return {"roofline": np.ones(len(steps))}

    def excesses(self, steps: pd.DataFrame) -> list[Excess]:
        """None: there is no range to leave."""
        return []


@dataclass(frozen=True, slots=True)
class Calibration:
    """A model fitted to steps of up to ``largest``.

    All decodes are taken to grow, the rows that a static batch drags along as well.
    """

    profile: str
    largest: MeasuredRange

    def row_shares(self, steps: pd.DataFrame) -> dict[Provenance, FloatArray]:
        """Interpolated as long as every feature is within its range, extrapolated from there."""
        inside = _share_within(steps, self.largest.decode_context_tokens)
        for feature, values in _constant_features(steps).items():
            inside[values > getattr(self.largest, feature)] = 0.0
        return {"interpolated": inside, "extrapolated": 1 - inside}

    def excesses(self, steps: pd.DataFrame) -> list[Excess]:
        """The features that are larger in some step than the largest measured, at their largest."""
        features = {**_constant_features(steps), "decode_context_tokens": _last_context(steps)}
        found = []
        for feature, values in features.items():
            value, measured = float(values.max(initial=0.0)), getattr(self.largest, feature)
            if value > measured:
                found.append(Excess(self.profile, feature, value, measured))
        return found


@runtime_checkable
class Sourced(Protocol):
    """A server whose step times know what they rest on; all others are formulas."""

    def source(self, layout: KVLayout) -> Source:
        """What the step times for a KV layout rest on."""


@dataclass(frozen=True, slots=True)
class RunProvenance:
    """What a run rests on: ``shares`` of its busy time (they sum to 1), and what left its range."""

    shares: dict[Provenance, float]
    excesses: list[Excess]

    def as_dict(self) -> dict[str, Any]:
        """The form in ``summary.json``."""
        return {
            "shares": dict(self.shares),
            "outside": [asdict(excess) for excess in self.excesses],
        }


def run_provenance(steps: pd.DataFrame, sources: Sequence[Source]) -> RunProvenance:
    """What the ``Run.steps`` of replicas 0, 1 ... rest on, whose models rest on ``sources``."""
    busy_s: dict[Provenance, float] = {}
    farthest: dict[tuple[str, str], Excess] = {}
    for replica in steps["replica"].unique().tolist():
        rows, source = steps[steps["replica"] == replica], sources[replica]
        lasted_s = (rows["end_s"] - rows["start_s"]).to_numpy(float)
        for kind, parts in source.row_shares(rows).items():
            busy_s[kind] = busy_s.get(kind, 0.0) + float(parts @ lasted_s)
        for excess in source.excesses(rows):
            key = excess.profile, excess.feature
            farthest[key] = max(excess, farthest.get(key, excess), key=lambda found: found.value)
    total_s = sum(busy_s.values())
    shares = {kind: spent_s / total_s for kind, spent_s in busy_s.items() if spent_s}
    return RunProvenance(shares, list(farthest.values()))


def _share_within(steps: pd.DataFrame, most: float) -> FloatArray:
    """The part of each row's steps whose decodes attend to at most ``most`` positions."""
    context = steps["decode_context_tokens"].to_numpy(float)
    growth = np.maximum(1.0, steps["decode_sequences"].to_numpy(float))
    count = steps["steps"].to_numpy(float)
    within = np.floor((most - context) / growth) + 1
    return np.asarray(np.clip(within, 0, count) / count, dtype=np.float64)


def _last_context(steps: pd.DataFrame) -> FloatArray:
    """The context of the decodes in the last step of each row."""
    growth = (steps["steps"] - 1) * steps["decode_sequences"]
    return (steps["decode_context_tokens"] + growth).to_numpy(float)


def _constant_features(steps: pd.DataFrame) -> dict[str, FloatArray]:
    """What is the same in every step of a row."""
    names = ("decode_sequences", "prefill_chunks", "rows", "prefill_pairs")
    return {name: steps[name].to_numpy(float) for name in names}
