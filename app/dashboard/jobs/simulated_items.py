"""What jobs simulate in processes without Streamlit: points of a grid, and replications."""

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pandas as pd

from servetwin.app.scenario.files.scenario_file import ScenarioFile
from servetwin.sim.experiments import sweep
from servetwin.sim.experiments.predict import replication
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.experiments.sweep import FIGURE_MEANINGS, PROBLEM, Row
from servetwin.workloads.errors import ServetwinError
from servetwin.workloads.trace import Trace


@dataclass(frozen=True, slots=True)
class GridScenario:
    """A scenario and, where it needs one, its uploaded trace, pickled."""

    file: ScenarioFile
    given: bytes | None = None


def simulate_point(scene: GridScenario) -> Row:
    """Return the figures of a point (``FIGURE_MEANINGS``), or its problem if it cannot run."""
    file = scene.file
    try:
        trace, scenario = built(file, scene.given)
        conditions = sweep.GridConditions(trace, file.slo.slo(), file.seed)
        return sweep.simulate_point(conditions, sweep.GridPoint(scenario))
    except ServetwinError as error:
        return {PROBLEM: str(error)}


def with_rate(base: ScenarioFile, rate_per_s: float) -> ScenarioFile:
    """Return ``base`` with requests that come at another rate."""
    workload = base.workload.model_copy(update={"rate_per_s": rate_per_s})
    return base.model_copy(update={"workload": workload})


def points_frame(points: Sequence[Mapping[str, Any]], results: Mapping[int, Row]) -> pd.DataFrame:
    """Return the points that have ended, with their figures, by their place in the grid."""
    columns = [*dict.fromkeys(name for p in points for name in p), *FIGURE_MEANINGS, PROBLEM]
    rows = [{**points[place], **row} for place, row in results.items()]
    frame = pd.DataFrame(rows, index=list(results), columns=columns)
    return frame.astype(dict.fromkeys(FIGURE_MEANINGS, float)).fillna({PROBLEM: ""})


Summary = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Replication:
    """A replication by its number, with the scenario's uploaded trace, pickled, where it has one.

    ``extrapolate`` says whether the scenario's step times leave what was measured.
    """

    file: ScenarioFile
    number: int
    extrapolate: bool
    given: bytes | None = None


def simulate_replication(one: Replication) -> Summary:
    """Return its summary. Replication r of a seed draws the same in every scenario (common random
    numbers), so that common variation cancels in a difference."""
    file = one.file
    trace, scenario = built(file, one.given)
    return replication(
        trace, scenario, one.number, seed=file.seed, extrapolate=one.extrapolate,
        redraw=file.redraw if file.workload.is_generated else None,
    ).summary(file.slo.slo())  # fmt: skip


def built(file: ScenarioFile, given: bytes | None) -> tuple[Trace, Scenario]:
    """Return requests and scenario of a file; ``given`` is its uploaded trace, pickled.

    They are kept, for several items of a job have the same.
    """
    return _built(file.model_dump_json(), given)


@lru_cache(maxsize=8)
def _built(text: str, given: bytes | None) -> tuple[Trace, Scenario]:
    file = ScenarioFile.model_validate_json(text)
    trace = trace_of(file, given)
    return trace, file.build(trace)


def trace_of(file: ScenarioFile, given: bytes | None) -> Trace:
    """Return the requests of a file; ``given`` is its uploaded trace, pickled."""
    uploaded = {file.workload.source: pickle.loads(given)} if given else None
    return file.workload.trace(file.seed, uploaded)
