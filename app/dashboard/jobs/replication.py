"""One replication of a scenario, simulated in a process without Streamlit."""

import pickle
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from servetwin.app.scenario.files.scenario_file import ScenarioFile
from servetwin.sim.experiments.predict import replication_summary
from servetwin.sim.experiments.scenario import Scenario
from servetwin.workloads.trace import Trace

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
    trace, scenario = _built(file.model_dump_json(), one.given)
    return replication_summary(
        trace, scenario, one.number, seed=file.seed, extrapolate=one.extrapolate,
        slo=file.slo.slo(), redraw=file.redraw if file.workload.is_generated else None,
    )  # fmt: skip


@lru_cache(maxsize=4)
def _built(text: str, given: bytes | None) -> tuple[Trace, Scenario]:
    file = ScenarioFile.model_validate_json(text)
    uploaded = {file.workload.source: pickle.loads(given)} if given else None
    trace = file.workload.trace(file.seed, uploaded)
    return trace, file.build(trace)
