"""Options that choose the servers of a simulation: profiles, data sheets, or tables."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar

from typer import Option

from app.scenario.table_options import TableOptions
from workloads.errors import PolicyError

if TYPE_CHECKING:
    from sim.experiments.scenario import Scenario


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """A calibrated profile, or a model on a device by its data sheet or by measured tables."""

    PANEL: ClassVar = "Server"

    profiles: Annotated[
        tuple[str, ...],
        Option("--profile", help="{server.profile} Or a step time, path.py:Class. Several: pools."),
    ] = ()
    model: Annotated[str | None, Option(help="{server.model}")] = None
    hardware: Annotated[str | None, Option(help="{server.hardware}")] = None
    techniques: Annotated[
        tuple[str, ...],
        Option(
            "--technique",
            metavar="NAME:KEY=VALUE,...",
            help="{server.techniques} Or path.py:Class.",
        ),
    ] = ()
    efficiency: Annotated[
        str | None, Option(metavar="NAME=VALUE,...", help="{server.efficiency}")
    ] = None
    tables: TableOptions = field(default_factory=TableOptions)

    def base(self) -> "Scenario":
        """Return the servers with the policies that they bring.

        Raises ``PolicyError`` for options that do not go together.
        """
        from sim.experiments.scenario import ClusterConfig, Scenario
        from sim.step_times.plugin_server import load_server
        from sim.step_times.profile import DEFAULT_PROFILE
        from sim.techniques.build import build_setup, parse_efficiency

        self._check()
        if self.model is None:
            profiles = [load_server(name) for name in self.profiles or (DEFAULT_PROFILE,)]
            first, *more = profiles
            return Scenario(first.policy_config(), first, ClusterConfig(), tuple(more))
        if self.hardware is None:
            return self.tables.alone(self.model)
        efficiency = parse_efficiency(self.efficiency or "")
        setup = build_setup(self.model, self.hardware, self.techniques, efficiency)
        return self.tables.over(setup) if self.tables.given else setup.scenario()

    def record(self) -> dict[str, object]:
        """Return what ``scenario.yaml`` says of the servers."""
        from sim.step_times.profile import DEFAULT_PROFILE

        if self.model is None:
            names = self.profiles or (DEFAULT_PROFILE,)
            return {"profile": names[0] if len(names) == 1 else list(names)}
        return {
            "model": self.model,
            "hardware": self.hardware,
            "techniques": list(self.techniques),
            "efficiency": self.efficiency,
            "tables": [str(path) for path in self.tables.paths],
        }

    def _check(self) -> None:
        self.tables.check()
        if self.model is None and self.hardware is not None:
            raise PolicyError("--model: --model and --hardware go together")
        if self.model is not None and self.hardware is None and self.tables.layers is None:
            raise PolicyError("--hardware: --model and --hardware go together")
        if self.model is not None and self.profiles:
            raise PolicyError("--profile: either a profile, or --model and --hardware")
        given = self.tables.given
        if self.model is None and given:
            raise PolicyError(
                f"--{given}: needs --model{'' if given == 'layers' else ' and --hardware'}"
            )
        for option, value in (("technique", self.techniques), ("efficiency", self.efficiency)):
            if value and self.hardware is None:
                raise PolicyError(f"--{option}: needs --model and --hardware")
