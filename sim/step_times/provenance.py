"""The provenance of simulated time: where the estimate of the duration of each step comes from.

An *origin* says who knows the step times; a kind says how near a step is to what they know:

============  =================================================================================
measured      a table has that very step
interpolated  no feature of the step is beyond its largest measured value
extrapolated  some feature is
roofline      a formula, without a range
============  =================================================================================

Shares are of the busy time of the servers, computed from the steps of a run. The steps of a row
count equally, each with its own context.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from math import inf
from operator import itemgetter
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from servetwin.policies.protocols import KVLayout
from servetwin.sim.records.columns import Columns, Table, columns_of, rows_of
from servetwin.sim.step_times.step_time import FloatArray
from servetwin.workloads.program.package import shipped_json

# ``not stated``, the fifth, is for a class of your own and for values that you give.
Origin = Literal[
    "measured here", "measured by others", "kernel tables", "computed from data sheets",
    "not stated",
]  # fmt: skip

# What each origin means, in a sentence.
MEANINGS: dict[Origin, str] = shipped_json("sim/step_times/origins.json")


Provenance = Literal["measured", "interpolated", "extrapolated", "roofline"]


@dataclass(frozen=True, slots=True)
class MeasuredRange:
    """The largest measured value of each feature; infinite if it is not known."""

    decode_sequences: float = inf
    prefill_chunks: float = inf
    rows: float = inf
    decode_context_tokens: float = inf
    prefill_pairs: float = inf
    prefill_context_tokens: float = inf
    batch_pairs: float = inf

    @classmethod
    def of(cls, ranges: Mapping[str, float]) -> "MeasuredRange":
        """Return the range of ``Fit.ranges``; the row segments add up to the most rows."""
        segments = [value for name, value in ranges.items() if name.startswith("rows_from_")]
        features = {each.name for each in fields(cls)} & ranges.keys()
        most = {name: ranges[name] for name in features}
        return cls(**{**most, "rows": sum(segments) if segments else inf})


@dataclass(frozen=True, slots=True)
class Excess:
    """A feature that reached ``value`` in a run; ``profile`` was measured up to ``measured``.

    ``feature`` is the name of a field of ``MeasuredRange``.
    """

    profile: str
    feature: str
    value: float
    measured: float


def excesses_of(
    profile: str, reached: Mapping[str, float], largest: Mapping[str, float]
) -> list[Excess]:
    """Return the features whose value is beyond the largest measured one, where that is known."""
    return [
        Excess(profile, feature, value, largest[feature])
        for feature, value in reached.items()
        if value > largest.get(feature, inf)
    ]


@dataclass(frozen=True)
class Source:
    """The provenance of a step-time model, over rows of ``Run.steps``.

    By default that of a formula, or of a class of ``origin``: without a measured range.
    """

    origin: Origin = field(default="computed from data sheets", kw_only=True)

    def row_shares(self, steps: Columns) -> dict[Provenance, FloatArray]:
        """Return the share of the steps of each row, by kind; the shares of a row sum to 1."""
        return {"roofline": np.ones(len(steps["steps"]))}

    def row_origins(self, steps: Columns) -> dict[Origin, FloatArray]:
        """Return the share of the time of each row, by origin; the shares of a row sum to 1."""
        return {self.origin: np.ones(len(steps["steps"]))}

    def excesses(self, steps: Columns) -> list[Excess]:
        """Return the features beyond their measured range, at their largest."""
        return []


@dataclass(frozen=True)
class Calibration(Source):
    """The provenance of a model fitted to steps of up to ``largest``.

    All decodes are taken to grow, also the finished rows of a static batch.
    """

    profile: str
    largest: MeasuredRange
    origin: Origin = field(default="measured here", kw_only=True)

    def row_shares(self, steps: Columns) -> dict[Provenance, FloatArray]:
        """Return the shares of interpolated and extrapolated steps."""
        inside = _share_within(steps, self.largest.decode_context_tokens)
        for feature, values in _constant_features(steps).items():
            inside[values > getattr(self.largest, feature)] = 0.0
        return {"interpolated": inside, "extrapolated": 1 - inside}

    def excesses(self, steps: Columns) -> list[Excess]:
        """Return the features beyond their measured range in some step, at their largest."""
        growth = (steps["steps"] - 1) * steps["decode_sequences"]
        last_context = steps["decode_context_tokens"] + growth
        features = {**_constant_features(steps), "decode_context_tokens": last_context}
        reached = {name: float(values.max(initial=0)) for name, values in features.items()}
        return excesses_of(self.profile, reached, asdict(self.largest))


@runtime_checkable
class Sourced(Protocol):
    """A server whose step times have a provenance; all others are formulas."""

    def source(self, layout: KVLayout) -> Source:
        """Return the provenance of the step times for a KV layout."""


@dataclass(frozen=True, slots=True)
class RunProvenance:
    """The provenance of a run: shares of its busy time, and range excesses.

    ``origins`` and ``shares`` sum to 1 each; ``extrapolated`` is the part of each origin that lies
    beyond its range. ``outside`` are the features beyond their measured range.
    """

    origins: dict[Origin, float]
    extrapolated: dict[Origin, float]
    shares: dict[Provenance, float]
    outside: list[Excess]

    def as_dict(self) -> dict[str, Any]:
        """Return the form in ``summary.json``."""
        return asdict(self)


def run_provenance(table: Table, sources: Sequence[Source]) -> RunProvenance:
    """Return the provenance of ``Run.steps``; entry i of ``sources`` is that of replica i.

    Replicas of one source are taken together.
    """
    steps = columns_of(table)
    by_id = {id(source): source for source in sources}
    source_of_replica = np.array([id(source) for source in sources])
    farthest: dict[tuple[str, str], Excess] = {}
    for owner, source in by_id.items():
        own = steps
        if len(by_id) > 1:
            own = rows_of(steps, source_of_replica[steps["replica"]] == owner)
        for excess in source.excesses(own):
            key = excess.profile, excess.feature
            farthest[key] = max(excess, farthest.get(key, excess), key=lambda one: one.value)
    busy_s, origin_s, extrapolated_s = _busy_s(steps, by_id, source_of_replica)
    total_s = sum(busy_s.values())
    return RunProvenance(
        _shares(origin_s, total_s),
        _shares(extrapolated_s, total_s),
        _shares(busy_s, total_s),
        list(farthest.values()),
    )


def _busy_s(
    steps: Columns, sources: Mapping[int, Source], source_of_replica: npt.NDArray[Any]
) -> tuple[Mapping[Provenance, float], Mapping[Origin, float], Mapping[Origin, float]]:
    """Return the busy time by kind, by origin and its extrapolated part, replica by replica."""
    busy_s: defaultdict[Provenance, float] = defaultdict(float)
    origin_s: defaultdict[Origin, float] = defaultdict(float)
    extrapolated_s: defaultdict[Origin, float] = defaultdict(float)
    shares = {owner: source.row_shares(steps) for owner, source in sources.items()}
    origins = {owner: source.row_origins(steps) for owner, source in sources.items()}
    lasted_s, replicas = steps["end_s"] - steps["start_s"], steps["replica"]
    order = np.argsort(replicas, kind="stable")
    by_replica: list[Any] = np.split(order, np.flatnonzero(np.diff(replicas[order])) + 1)
    by_replica = sorted(by_replica, key=itemgetter(0)) if by_replica[1:] else [slice(None)]
    for rows in by_replica if len(order) else ():
        owner, spent_s = int(source_of_replica[replicas[rows][0]]), lasted_s[rows]
        for kind, parts in shares[owner].items():
            busy_s[kind] += float(parts[rows] @ spent_s)
        for origin, parts in origins[owner].items():
            of_origin = parts[rows]
            origin_s[origin] += float(of_origin @ spent_s)
            if (beyond := shares[owner].get("extrapolated")) is not None:
                extrapolated_s[origin] += float((beyond[rows] * of_origin) @ spent_s)
    return busy_s, origin_s, extrapolated_s


_Key = TypeVar("_Key")


def _shares(sums_s: Mapping[_Key, float], total_s: float) -> dict[_Key, float]:
    return {key: spent_s / total_s for key, spent_s in sums_s.items() if spent_s}


def _share_within(steps: Columns, most: float) -> FloatArray:
    """Return the share of the steps of each row whose decode context is at most ``most``."""
    within = float(most) - steps["decode_context_tokens"]
    within /= np.maximum(1.0, steps["decode_sequences"])
    np.floor(within, out=within)
    within += 1
    np.clip(within, 0, steps["steps"], out=within)
    return np.asarray(within / steps["steps"], dtype=np.float64)


def _constant_features(steps: Columns) -> Columns:
    """Return the features that are equal in all steps of a row."""
    names = ("decode_sequences", "prefill_chunks", "rows", "prefill_pairs")
    return {name: steps[name] for name in names}
