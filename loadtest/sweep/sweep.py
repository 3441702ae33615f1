"""A sweep over load levels: its settings, levels so far, which one is next, and its file."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import TypeAdapter

from servetwin.loadtest.sweep.knee import Knee, KneeSearch, RatedLevel, find_knee
from servetwin.loadtest.sweep.level import COMPLETED, Level, LevelPlan
from servetwin.sim.records.metrics import SLO
from servetwin.sim.records.run import RunError, save_files
from servetwin.workloads.errors import EndedEarly, os_errors
from servetwin.workloads.files import mapping_in

SweepOf = Literal["rates", "users", "slo"]

# Limits of the p99 as multiples of that of requests alone, where a search has no SLO: slowdowns
# that Splitwise allows (Patel et al., "Efficient generative LLM inference using phase splitting",
# 2024).
TIMES_ALONE = {"ttft_s": 6.0, "tpot_s": 5.0, "e2e_s": 5.0}
# One user, then all requests at once: the levels that come first.
ENDS = 2
# Of a climb: requests of one user, and the fewest of a level.
CLIMB_ALONE, CLIMB_LEAST = 10, 20
NARROW = "every bracket is narrow"
MISSED_ALONE = "the SLO is missed by requests that come alone"
ALL_LEVELS = "all levels are measured"
NONE_FINISHED = "no request finished"
# The file of a sweep, beside the run folders of its levels; it is whole after every level.
SWEEP = "sweep.json"


@dataclass(frozen=True, slots=True)
class SweepSettings:
    """What is swept.

    ``levels`` lie between the two ends of a sweep of rates or users. ``wanted`` is the share of the
    ``requests`` of a level that must keep ``slo``; ``precision`` as in ``KneeSearch``. A climb is a
    search whose levels are sent for ``level_s``, but of no more requests, and which has no level of
    all requests at once.
    """

    of: SweepOf
    requests: int
    levels: int = 6
    slo: SLO | None = None
    wanted: float = 0.99
    precision: float = 0.02
    level_s: float | None = None

    def requests_at(self, rate_per_s: float) -> int | None:
        """Return the requests of a level of a climb; None where all levels have ``requests``."""
        if self.level_s is None:
            return None
        return min(max(CLIMB_LEAST, round(self.level_s * rate_per_s)), self.requests)


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep so far: ``ended`` says why no level follows, and is None before that.

    ``early`` says that it ended before its end and its budget. ``about`` says what was tested:
    endpoint, load, salt, profile.
    """

    settings: SweepSettings
    levels: tuple[Level, ...] = ()
    ended: str | None = None
    early: bool = False
    predicted: Knee | None = None
    """The knee of the simulator; its ends are the 5 % and 95 % quantiles, if it has any."""
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def limits(self) -> SLO | None:
        """The SLO; of a search without one, limits by what requests took that came alone."""
        if self.settings.slo or self.settings.of != "slo" or not self.levels:
            return self.settings.slo
        alone = self.levels[0].figures
        p99 = {name: alone[f"{name}.p99"] for name in TIMES_ALONE}
        known = {n: float(f"{TIMES_ALONE[n] * value:.3g}") for n, value in p99.items() if value}
        return SLO(**known) if known else None

    @property
    def rated(self) -> list[RatedLevel]:
        """The levels at a rate that count, where there is an SLO."""
        return [
            RatedLevel(level.plan.rate_per_s, level.attainment)
            for level in self.levels
            if level.counts and level.plan.rate_per_s is not None and level.attainment is not None
        ]

    @property
    def knee(self) -> Knee | None:
        """The knee, where there are levels at a rate and an SLO."""
        rated = self.rated
        return find_knee(rated, self.settings.wanted) if rated else None

    def next_level(self) -> LevelPlan | str:
        """Return the next level, or why there is none.

        Raises ``EndedEarly`` where an end has no rate.
        """
        number = len(self.levels) + 1
        if number == 1:
            alone = CLIMB_ALONE if self.settings.level_s else None
            return LevelPlan(number, "synchronous", users=1, requests=alone)
        if number == ENDS and self.settings.level_s is None:
            return LevelPlan(number, "throughput")
        if self.settings.of == "slo":
            return self._searched(number)
        if self.settings.of == "users":
            most = self.levels[1].answered_at_once or 1.0
            users = users_between(most, self.settings.levels)
            left = users[number - ENDS - 1 :]
            return LevelPlan(number, "users", users=left[0]) if left else ALL_LEVELS
        rates = rates_between(self._end_per_s(0), self._end_per_s(1), self.settings.levels)
        ahead = rates[number - ENDS - 1 :]
        return LevelPlan(number, "rate", rate_per_s=ahead[0]) if ahead else ALL_LEVELS

    def as_dict(self) -> dict[str, Any]:
        """Return the sweep and its knee for JSON."""
        return {
            "sweep": asdict(self.settings),
            "levels": [asdict(level) for level in self.levels],
            "ended": self.ended,
            "early": self.early,
            "limits": self.limits and asdict(self.limits),
            "knee": self.knee and asdict(self.knee),
            "predicted_knee": self.predicted and asdict(self.predicted),
            "about": dict(self.about),
        }

    def save(self, folder: Path) -> None:
        """Write ``sweep.json``; raises ``NotSaved`` as ``Run.save`` does."""
        record = json.dumps(self.as_dict(), indent=1).encode()
        save_files(folder, lambda: [(SWEEP, record)])

    @classmethod
    def of_dict(cls, record: Mapping[str, Any]) -> "Sweep":
        """Return the sweep of ``as_dict``."""
        fields = {"settings": record["sweep"], "predicted": record["predicted_knee"]}
        return TypeAdapter(cls).validate_python({**record, **fields})

    def _searched(self, number: int) -> LevelPlan | str:
        settings, alone = self.settings, self.levels[0].attainment
        if alone and alone.high < settings.wanted:
            return MISSED_ALONE
        search = KneeSearch(
            settings.wanted,
            self._end_per_s(0),
            inf if settings.level_s else self._end_per_s(1),
            settings.precision,
            settings.requests,
        )
        rate_per_s = search.next_rate_per_s(self.rated)
        if rate_per_s is None:
            return NARROW
        return LevelPlan(number, "rate", rate_per_s, requests=settings.requests_at(rate_per_s))

    def _end_per_s(self, end: int) -> float:
        level = self.levels[end]
        rate_per_s = level.figures[COMPLETED]
        if rate_per_s is None:
            raise EndedEarly(
                f"the {level.plan.kind} end of the sweep has no rate: "
                f"{level.requests - level.failed} of {level.requests} requests finished; at least "
                "10 are needed"
            )
        return rate_per_s


def rates_between(alone_per_s: float, saturation_per_s: float, count: int) -> list[float]:
    """Return ``count`` rates between two, at equal distances."""
    return [float(rate) for rate in np.linspace(alone_per_s, saturation_per_s, count + 2)[1:-1]]


def users_between(most: float, count: int) -> list[int]:
    """Return at most ``count`` numbers of users above 1 and up to ``most``, evenly apart."""
    spread = np.linspace(1, max(2.0, most), count + 1)[1:]
    return sorted({round(users) for users in spread.tolist() if round(users) > 1})


def is_sweep(folder: Path) -> bool:
    """Return whether a folder holds a sweep."""
    return (folder / SWEEP).is_file()


def load_sweep(folder: Path) -> Sweep:
    """Read the sweep of a folder; raises ``RunError`` where it is missing or damaged."""
    path = folder / SWEEP
    with os_errors(RunError, f"{path}: not a readable sweep", ValueError, KeyError, TypeError):
        return Sweep.of_dict(mapping_in(path))
