"""All options that say what to simulate, for every command that simulates."""

from dataclasses import dataclass, replace
from pathlib import Path

from servetwin.app.scenario.cluster_options import ClusterOptions
from servetwin.app.scenario.options.policy import PolicyOptions
from servetwin.app.scenario.options.server import ServerOptions
from servetwin.app.scenario.options.trace import TraceOptions


@dataclass(frozen=True, slots=True)
class ScenarioOptions:
    """A trace and a scenario of the command line."""

    servers: ServerOptions
    policy: PolicyOptions
    cluster: ClusterOptions
    trace: TraceOptions

    def with_trace(self, path: Path | None, seed: int) -> "ScenarioOptions":
        """Return the options with the trace at ``path``."""
        return replace(self, trace=replace(self.trace, path=path, seed=seed))
