"""A scenario file under the options of the command line, which win over it."""

from dataclasses import dataclass, replace

from servetwin.app.scenario.files.scenario_file import GENERATED, SAMPLE, ScenarioFile
from servetwin.app.scenario.options.policy import PolicyOptions, ScenarioOptions
from servetwin.app.scenario.options.server import ServerOptions
from servetwin.app.scenario.scenarios import fit_to_trace
from servetwin.app.scenario.servers import Servers
from servetwin.sim.experiments.predict import Redraw
from servetwin.sim.experiments.scenario import Scenario
from servetwin.workloads.trace import Trace


@dataclass(frozen=True, slots=True)
class ReplayScenario:
    """``options`` over ``file``; without a file, the options alone."""

    file: ScenarioFile | None
    options: ScenarioOptions

    @property
    def seed(self) -> int:
        """The seed of every random stream."""
        return self.options.trace.seed

    def servers(self) -> ServerOptions:
        """Return the servers of the options, where these name any; else those of the file.

        Techniques of the options come over those of the file.
        """
        if self.file and self.options.servers.names_no_server():
            return self.file.server.options().with_toggles(self.options.servers)
        return self.options.servers

    def base(self) -> Servers:
        """Return the servers with the policies and cluster of the file."""
        servers = self.servers().servers(self.options.cluster.link())
        return self.file.servers(servers) if self.file else servers

    def policies(self) -> PolicyOptions:
        """Return the policy options; a model length of the file does not grow with the trace."""
        policy = self.options.policy
        in_file = self.file.policies.get("max_model_len") if self.file else None
        return replace(policy, max_model_len=policy.max_model_len or in_file)

    def requests(self) -> Trace:
        """Return the trace; where the file names one, as many requests at the rate of the file.

        Raises ``TraceError`` where there is neither trace nor workload.
        """
        trace = self.options.trace
        if trace.path is None and self.file is not None:
            return trace.transform(self.file.workload.trace(trace.seed))
        if self.file is None or self.file.workload.source in (GENERATED, SAMPLE):
            return trace.read()
        workload = self.file.workload
        rate_per_s = trace.rate_per_s or (None if trace.rate_scale else workload.rate_per_s)
        limit = workload.requests if trace.limit is None else trace.limit
        columns = trace.columns or workload.columns
        found = replace(trace, limit=limit, rate_per_s=rate_per_s, columns=columns).read()
        return workload.with_prefixes(found, trace.seed)

    def redraw(self, scenario: Scenario) -> Redraw | None:
        """Return draws of a generated workload with other seeds; None for a recorded one."""
        options = self.options.trace
        if self.file is None or options.path or not self.file.workload.is_generated:
            return None
        workload, settings = self.file.workload, self.policies().changes()

        def draw(seed: int) -> tuple[Trace, Scenario]:
            trace = options.transform(workload.trace(seed))
            config, _ = fit_to_trace(scenario.policies, trace, settings)
            return trace, replace(scenario, policies=config)

        return draw
