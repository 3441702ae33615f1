"""Options that choose the servers of a simulation: profiles, data sheets, or tables."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from typer import Option

from workloads.errors import PolicyError

if TYPE_CHECKING:
    from sim.experiments.scenario import Scenario
    from sim.step_times.server_model import ServerModel
    from sim.techniques.setup import Setup


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
    operators: Annotated[tuple[Path, Path] | None, Option(metavar="MLP ATTENTION")] = None
    """Operator times of that model: two CSV files in Vidur's columns."""
    phases: Annotated[Path | None, Option()] = None
    """TTFT and TBT tables in Splitwise's columns."""
    where: Annotated[tuple[str, ...], Option(metavar="COLUMN=VALUE")] = ()
    """Which rows of the tables."""

    def base(self) -> "Scenario":
        """Return the servers with the policies that they bring.

        Raises ``PolicyError`` for options that do not go together.
        """
        from sim.experiments.scenario import ClusterConfig, Scenario
        from sim.step_times.plugin_server import load_server
        from sim.step_times.profile import DEFAULT_PROFILE
        from sim.techniques.build import build_setup, parse_efficiency

        self._check()
        if self.model is None or self.hardware is None:
            profiles = [load_server(name) for name in self.profiles or (DEFAULT_PROFILE,)]
            first, *more = profiles
            return Scenario(first.policy_config(), first, ClusterConfig(), tuple(more))
        efficiency = parse_efficiency(self.efficiency or "")
        setup = build_setup(self.model, self.hardware, self.techniques, efficiency)
        scenario = setup.scenario()
        if self.operators is None and self.phases is None:
            return scenario
        server = self._table_server(setup, scenario)
        return Scenario(scenario.policies, server, scenario.cluster)

    def record(self) -> dict[str, object]:
        """Return what ``scenario.yaml`` says of the servers."""
        from sim.step_times.profile import DEFAULT_PROFILE

        if self.model is None:
            names = self.profiles or (DEFAULT_PROFILE,)
            return {"profile": names[0] if len(names) == 1 else list(names)}
        tables = [*(self.operators or ()), *((self.phases,) if self.phases else ())]
        return {
            "model": self.model,
            "hardware": self.hardware,
            "techniques": list(self.techniques),
            "efficiency": self.efficiency,
            "tables": [str(path) for path in tables],
        }

    def _check(self) -> None:
        if (self.model is None) != (self.hardware is None):
            missing = "--hardware" if self.hardware is None else "--model"
            raise PolicyError(f"{missing}: --model and --hardware go together")
        if self.model is not None and self.profiles:
            raise PolicyError("--profile: either a profile, or --model and --hardware")
        needs_model = {
            "--technique": self.techniques,
            "--efficiency": self.efficiency,
            "--operators": self.operators,
            "--phases": self.phases,
        }
        for option, value in needs_model.items():
            if value and self.model is None:
                raise PolicyError(f"{option}: needs --model and --hardware")
        if self.operators and self.phases:
            raise PolicyError("--phases: either --operators or --phases, not both")
        if self.where and not (self.operators or self.phases):
            raise PolicyError("--where: chooses rows of --operators or --phases")

    def _table_server(self, setup: "Setup", scenario: "Scenario") -> "ServerModel":
        from sim.step_times.tables import OperatorTable, PhaseTable, TableProfile
        from workloads.key_values import key_value

        deployment = setup.deployment
        ranks, overhead_s = deployment.parallel.tensor, deployment.efficiency.overhead_s
        where = dict(key_value(text, "--where", form="COLUMN=VALUE") for text in self.where)
        table: OperatorTable | PhaseTable
        if self.operators is not None:
            table = OperatorTable.read(
                *self.operators,
                layers=deployment.model.layer_count,
                tensor_parallel=ranks,
                overhead_s=overhead_s,
                where=where,
            )
            name = self.operators[0].parent.name or "operators"
        else:
            assert self.phases is not None
            unknown = where.keys() - {"model", "hardware"}
            if unknown:
                raise PolicyError(f"--where: {min(unknown)!r}; a phase table has model, hardware")
            table = PhaseTable.read(
                self.phases,
                model=where.get("model"),
                hardware=where.get("hardware"),
                tensor_parallel=ranks if ranks > 1 else None,
            )
            name = self.phases.stem
        kv_bytes = deployment.kv_bytes_per_token()
        return TableProfile(name, table, scenario.policies, kv_bytes, setup.api)
