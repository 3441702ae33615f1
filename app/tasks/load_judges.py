"""What a load test is judged by: SLO, conditions, a prediction, a baseline."""

from collections.abc import Mapping
from dataclasses import dataclass

from servetwin.app.reports.report_folders import runs_by_folder
from servetwin.app.scenario.options.load_test import LoadTestOptions
from servetwin.app.verdict.same_load import check_same_lanes, check_same_load, require_same_settings
from servetwin.loadtest.endpoint import Endpoint
from servetwin.loadtest.options import LoadOptions
from servetwin.loadtest.report.limits import (
    FailCondition,
    Finding,
    judge_conditions,
    parse_thresholds,
)
from servetwin.loadtest.run.client import load_scenario
from servetwin.sim.records.metrics import SLO
from servetwin.sim.records.run import Run, load_run
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.trace import Trace


@dataclass(frozen=True, slots=True)
class Judges:
    """What a load test is judged by; all options are read before a load is sent.

    ``limits`` are the limits of the SLO, ``conditions`` what fails a load test in any case, and
    ``allowed`` says by metric how much worse than the baseline it may be.
    """

    options: LoadTestOptions
    limits: SLO | None
    conditions: list[FailCondition]
    allowed: Mapping[str, float] | None

    @classmethod
    def of(cls, options: LoadTestOptions) -> "Judges":
        """Read the options; raises ``LoadTestError`` where one cannot be read."""
        gate, attainment = options.gate, options.load.sweep.attainment
        limits, conditions = parse_thresholds(options.slo, gate.fail_if, attainment)
        return cls(options, limits, conditions, gate.limits())

    def findings(self, run: Run) -> list[Finding]:
        """Judge a run by each condition."""
        return judge_conditions(self.conditions, run, self.limits)

    def baselines(self, endpoint: Endpoint, trace: Trace, load: LoadOptions) -> dict[str, Run]:
        """Return the runs of the baseline; raises ``LoadTestError`` for those of another load."""
        scenario = load_scenario(endpoint, trace, load, len(trace))
        baselines = runs_by_folder(self.options.gate.baseline)
        for name, run in baselines.items():
            where = f"--baseline {name}"
            if run.kind != "loadtest":
                raise LoadTestError(f"{where}: a simulation; --against judges a prediction")
            require_same_settings("this load test", scenario, where, run.scenario)
            follows = load.follows(trace)
            check_same_load(run, trace, closed_loop=follows, option="--baseline", other=str(name))
        return {str(name): run for name, run in baselines.items()}

    def prediction(self, trace: Trace, load: LoadOptions) -> Run | None:
        """Return the prediction to compare with; raises ``LoadTestError`` for another load."""
        against = self.options.against
        if against is None:
            return None
        if load.cancellation:
            raise LoadTestError("--against and --cancel: no simulated client hangs up; give one")
        if load.endless:
            raise LoadTestError(
                "--against: users with --duration send more to a faster server, and a "
                "prediction is of given requests; give --limit N"
            )
        predicted = load_run(against)
        if trace.lanes:
            check_same_lanes(predicted, trace)
            return predicted
        check_same_load(predicted, trace, closed_loop=load.follows(trace))
        predicted.requests["warm_up"] = predicted.requests["scheduled_s"] < load.warm_up_s
        return predicted
