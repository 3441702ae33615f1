"""The source of a chart of simulations, for its picture."""

from collections.abc import Iterable
from dataclasses import replace

from servetwin.app.dashboard.simulations import SimulatedScenario
from servetwin.app.reports.run_words import grid_line, source_line
from servetwin.app.scenario.files.scenario_file import GENERATED_REQUESTS, ScenarioFile
from servetwin.app.scenario.scenarios import scenario_record
from servetwin.sim.records.run import Run


def simulated_source(outcomes: Iterable[SimulatedScenario]) -> str:
    """Return what was simulated, in one line; what several have in common stands once."""
    return source_line(list(map(recorded_run, outcomes)))


def recorded_run(outcome: SimulatedScenario) -> Run:
    """Return the run of a scenario with the record that a run folder would keep."""
    servers = outcome.file.server.options().record()
    record = scenario_record(outcome.trace, outcome.scenario, servers, outcome.file.seed)
    return replace(outcome.run, scenario=record)


def grid_source(base: ScenarioFile) -> str:
    """Return what the scenarios of a grid around ``base`` have in common."""
    workload, servers = base.workload, base.server.options().record()
    requests = workload.requests or (GENERATED_REQUESTS if workload.is_generated else None)
    return grid_line(servers, requests, workload.source, base.seed)
