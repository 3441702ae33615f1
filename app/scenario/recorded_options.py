"""Options that say which recorded run is judged, or calibrated from, and what served it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from typer import Option

from workloads.errors import LoadTestError, PolicyError

if TYPE_CHECKING:
    from app.scenario.policy_options import PolicyOptions
    from app.scenario.server_options import ServerOptions
    from policies.config import PolicyConfig
    from sim.experiments.scenario import Scenario
    from sim.step_times.step_time import StepTime
    from workloads.trace import Trace


@dataclass(frozen=True, slots=True)
class RecordedOptions:
    """A recorded run, and the tables of the GPU that served it."""

    PANEL: ClassVar = "Recorded run"

    recorded: Annotated[Path | None, Option(metavar="RUN")] = None
    """Instead of a live endpoint: a run folder of ``loadtest import``, or of a load test."""
    hardware: Annotated[str | None, Option(help="{server.hardware}")] = None
    layers: Annotated[Path | None, Option(metavar="DIR")] = None
    """Layer times of --model on that GPU."""
    link_us: Annotated[float | None, Option(min=0)] = None
    """Latency of a message between the ranks of tensor-parallel layer times."""
    link_gb_per_s: Annotated[float | None, Option(min=0.001)] = None
    """Bandwidth of the link between them, per direction."""
    techniques: Annotated[
        tuple[str, ...],
        Option("--technique", metavar="NAME:KEY=VALUE,...", help="{server.techniques}"),
    ] = ()

    def check_absent(self) -> None:
        """Raise ``LoadTestError`` for an option that needs a recorded run, where there is none."""
        for name in ("hardware", "layers", "link_us", "link_gb_per_s", "techniques"):
            if getattr(self, name) not in (None, ()):
                option = {"techniques": "technique"}.get(name, name).replace("_", "-")
                raise LoadTestError(f"--{option}: goes with --recorded")

    def scenario(
        self, trace: "Trace", model: str | None, profile: str | None, policy: "PolicyOptions"
    ) -> "Scenario":
        """Return the server that is predicted: a profile, layer times, or a data sheet.

        Raises ``PolicyError`` where none is named.
        """
        from app.scenario.cluster_options import ClusterOptions
        from app.scenario.scenarios import build_scenario

        if profile is None and model is None:
            raise PolicyError(
                "--recorded: say what served the run: --profile P, or --model M with --layers DIR "
                "or --hardware H"
            )
        servers = self._servers(model, profile).base()
        return build_scenario(trace, servers, policy, ClusterOptions())

    def prior(
        self, trace: "Trace", model: str | None, policy: "PolicyOptions"
    ) -> "tuple[PolicyConfig, StepTime | None]":
        """Return the policies of the server, and the step times that a fit may start from.

        These are of ``--model`` by its layer times or on ``--hardware``; None without them.
        """
        from app.scenario.cluster_options import ClusterOptions
        from app.scenario.scenarios import build_scenario, fit_to_trace
        from app.scenario.settings import with_settings
        from policies.registry import build_scheduler
        from sim.step_times.roofline.server import unlimited_policies

        if model is not None and (self.hardware or self.layers):
            servers = self._servers(model, None).base()
            scenario = build_scenario(trace, servers, policy, ClusterOptions())
            layout = build_scheduler(scenario.policies).memory.layout
            return scenario.policies, scenario.profile.step_time(layout).model()
        changes = policy.changes()
        config, _ = fit_to_trace(with_settings(unlimited_policies(), changes), trace, changes)
        return config, None

    def _servers(self, model: str | None, profile: str | None) -> "ServerOptions":
        from app.scenario.server_options import ServerOptions
        from app.scenario.table_options import TableOptions

        if (self.link_us is None) != (self.link_gb_per_s is None):
            missing = "--link-us" if self.link_us is None else "--link-gb-per-s"
            raise PolicyError(f"{missing}: --link-us and --link-gb-per-s go together")
        link = None
        if self.link_us is not None and self.link_gb_per_s is not None:
            link = (self.link_us, self.link_gb_per_s)
        return ServerOptions(
            (profile,) if profile else (),
            model,
            self.hardware,
            self.techniques,
            tables=TableOptions(layers=self.layers, rank_link=link),
        )
