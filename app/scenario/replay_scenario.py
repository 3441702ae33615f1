"""A scenario file on the command line: options, and a trace that is named there, win over it."""

from dataclasses import dataclass, replace

from app.scenario.options import PolicyOptions, TraceOptions
from app.scenario.scenario_file import GENERATED, SAMPLE, ScenarioFile
from app.scenario.scenarios import fit_to_trace
from app.scenario.servers import ServerOptions
from sim.experiments.predict import Redraw
from sim.experiments.scenario import Scenario
from workloads.trace import Trace


@dataclass(frozen=True, slots=True)
class ScenarioOptions:
    """``file`` under the options; without one, the options alone."""

    file: ScenarioFile | None
    servers: ServerOptions
    trace: TraceOptions
    policy: PolicyOptions

    def asked_servers(self) -> ServerOptions:
        """Those of the options, where there are any."""
        if self.file and self.servers == ServerOptions():
            return self.file.server.options()
        return self.servers

    def base(self) -> Scenario:
        """Servers with the policies and cluster of the file, to lay the options over."""
        servers = self.asked_servers().base()
        return self.file.settled(servers) if self.file else servers

    def policies(self) -> PolicyOptions:
        """The options; a model length that the file sets does not grow with the trace."""
        given = self.file.policies.get("max_model_len") if self.file else None
        return replace(self.policy, max_model_len=self.policy.max_model_len or given)

    def requests(self) -> Trace:
        """The trace; of a file that names one, so many requests at its rate.

        Raises ``TraceError`` where there is neither trace nor workload.
        """
        if self.trace.path is None and self.file is not None:
            return self.trace.of(self.file.workload.trace(self.trace.seed))
        if self.file is None or self.file.workload.source in (GENERATED, SAMPLE):
            return self.trace.read()
        workload, asked = self.file.workload, self.trace
        rate_per_s = asked.rate_per_s or (None if asked.rate_scale else workload.rate_per_s)
        limit = workload.requests if asked.limit is None else asked.limit
        return replace(asked, limit=limit, rate_per_s=rate_per_s).read()

    def redraw(self, scenario: Scenario) -> Redraw | None:
        """Other draws of a generated workload; None where the requests are what they are."""
        if self.file is None or self.trace.path or not self.file.workload.is_generated:
            return None
        workload, settings = self.file.workload, self.policies().given()

        def draw(seed: int) -> tuple[Trace, Scenario]:
            trace = self.trace.of(workload.trace(seed))
            config, _ = fit_to_trace(scenario.policies, trace, settings)
            return trace, replace(scenario, policies=config)

        return draw
