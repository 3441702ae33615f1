"""A forecast: what a frozen profile predicts for a trace at each load, before anything is tested.

On disk a forecast is a folder: ``profile.json``, the predicted run of each load, and
``forecast.json`` with the intervals, the SHA-256 of all these files, and a
digest of itself: nothing that is measured later can change it unnoticed.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from servetwin.app.verdict.claims import METRICS
from servetwin.app.verdict.lane_claims import TASK
from servetwin.policies.config import PolicyConfig
from servetwin.sim.experiments.capacity import saturation_interval
from servetwin.sim.experiments.predict import Interval, predict
from servetwin.sim.records.metrics import common
from servetwin.sim.records.run import Files, Run, machine_facts, within
from servetwin.sim.step_times.profile import Profile
from servetwin.workloads.trace import Trace
from servetwin.workloads.transform import at_rate

SCHEMA = "servetwin-forecast/1"
FORECAST = "forecast.json"
PROFILE = "profile.json"


@dataclass(frozen=True, slots=True)
class LevelForecast:
    """One offered load: its trace, and what is predicted for it.

    ``run`` is one simulation with the fitted coefficients, ``intervals`` are over the replications
    by metric.
    """

    utilisation: float
    trace: Trace
    run: Run
    intervals: Mapping[str, Interval]

    @property
    def folder(self) -> str:
        """Name of the folder that holds its runs."""
        return level_folder(self.utilisation)


def level_folder(utilisation: float) -> str:
    """Return the name of the folder of a load: ``at-70`` for 0.7."""
    return f"at-{100 * utilisation:.0f}"


@dataclass(frozen=True, slots=True)
class Forecast:
    """All that is predicted of one server.

    ``made`` has the date and the machine (``sim.records.run.machine_facts``).
    """

    profile: Profile
    capacity_per_s: Interval
    levels: tuple[LevelForecast, ...]
    seed: int
    made: Mapping[str, Any]

    @property
    def config(self) -> PolicyConfig:
        """The server's policies, as stated or identified."""
        return self.profile.policy_config()

    def files(self, folder: Path) -> Files:
        """Yield the files of a forecast in ``folder``, ``forecast.json`` last."""
        written = dict(self._predictions(folder))
        yield from written.items()
        yield FORECAST, json.dumps(self._record(written), indent=1).encode()

    def _predictions(self, folder: Path) -> Files:
        yield PROFILE, self.profile.as_json().encode()
        for level in self.levels:
            run = level.run
            run.scenario = {
                "trace": level.trace.source,
                "notes": list(level.trace.notes),
                "lanes": level.trace.lanes and asdict(level.trace.lanes),
                "profile": str((folder / PROFILE).resolve()),
                "policies": self.config.as_dict(),
                "seed": self.seed,
            }
            run.meta = dict(self.made)
            yield from within(f"{level.folder}/predicted", run.files())

    def _record(self, written: Mapping[str, bytes | None]) -> dict[str, Any]:
        record = {
            "schema": SCHEMA,
            "made": dict(self.made),
            "seed": self.seed,
            "policies": self.config.as_dict(),
            "capacity_per_s": asdict(self.capacity_per_s),
            "levels": [
                {
                    "utilisation": level.utilisation,
                    "requests": len(level.trace),
                    "rate_per_s": level.trace.rate_per_s,
                    "metrics": {name: asdict(one) for name, one in level.intervals.items()},
                }
                for level in self.levels
            ],
            "files": {name: _sha256(data) for name, data in written.items() if data is not None},
        }
        return {**record, "digest": _sha256(json.dumps(record, sort_keys=True).encode())}


def make_forecast(
    trace: Trace,
    profile: Profile,
    utilisations: Sequence[float],
    *,
    replications: int,
    seed: int = 0,
) -> Forecast:
    """Predict ``trace`` at shares ``utilisations`` of the capacity that the profile predicts.

    Lanes are a load by themselves: its share of the capacity is predicted.
    """
    config = profile.policy_config()
    capacity_per_s = saturation_interval(replace(trace, lanes=None), config, profile, seed=seed)
    levels = []
    for share in [0.0] if trace.lanes else utilisations:
        load = trace if trace.lanes else at_rate(trace, share * capacity_per_s.value)
        prediction = predict(load, config, profile, seed=seed, replications=replications)
        metrics = [*METRICS, TASK] if trace.lanes else METRICS
        known = common(metrics, prediction.summaries)
        intervals = {m: i for m in known if (i := prediction.interval(m)) is not None}
        done_per_s = prediction.run.summary()["request_throughput_per_s"] or 0.0
        share = share or done_per_s / capacity_per_s.value
        levels.append(LevelForecast(share, load, prediction.run, intervals))
    return Forecast(profile, capacity_per_s, tuple(levels), seed, machine_facts())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
