"""Options that choose the servers of a simulation: profiles, data sheets, or tables."""

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from typer import Option

from servetwin.workloads.errors import PolicyError

if TYPE_CHECKING:
    from servetwin.app.scenario.servers import Servers
    from servetwin.sim.catalogue.hardware import Link
    from servetwin.sim.catalogue.model import ModelShape
    from servetwin.sim.experiments.scenario import Scenario
    from servetwin.sim.step_times.profile import ApiLatencyFit
    from servetwin.sim.step_times.tables import KernelTable, LayerTable, Table
    from servetwin.sim.step_times.tables.server_overheads import ServerOverheads
    from servetwin.sim.techniques.registry import Toggles
    from servetwin.sim.techniques.setup import Setup


_FORMATS = ("operators", "phases", "layers", "kernels")


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Measured times of a model's operators, phases, layers or kernels."""

    PANEL: ClassVar = "Tables"

    operators: Annotated[tuple[Path, Path] | None, Option(metavar="MLP ATTENTION")] = None
    """Operator times of that model: two CSV files in Vidur's columns."""
    phases: Annotated[Path | None, Option()] = None
    """TTFT and TBT tables in Splitwise's columns."""
    where: Annotated[tuple[str, ...], Option(metavar="COLUMN=VALUE")] = ()
    """Which rows of the tables."""
    layers: Annotated[Path | None, Option(metavar="DIR")] = None
    """Layer times of that model on a GPU: a bundle as LLMServingSim measures it through vLLM."""
    kernels: Annotated[str | None, Option(metavar="BACKEND")] = None
    """NVIDIA's kernel tables of that model and device under vllm, sglang or trtllm."""
    overheads: Annotated[str | None, Option(metavar="fitted|NAME=VALUE,...")] = None
    """What the server adds to kernels or layers: seconds by term, or as fitted for a backend."""

    @property
    def given(self) -> str | None:
        """The option that names a table, or None."""
        return next((name for name in _FORMATS if getattr(self, name) is not None), None)

    @property
    def sources(self) -> list[str]:
        """The files or folders of the tables, or the backend of kernel tables."""
        found = [*(self.operators or ()), self.phases, self.layers]
        paths = [str(path) for path in found if path is not None]
        return [*paths, *([f"kernels of {self.kernels}"] if self.kernels else [])]

    def check(self) -> None:
        """Raise ``PolicyError`` for options that do not go together."""
        named = [name for name in _FORMATS if getattr(self, name) is not None]
        if len(named) > 1:
            raise PolicyError(f"--{named[1]}: either --{named[0]} or --{named[1]}, not both")
        if self.where and self.operators is None and self.phases is None:
            raise PolicyError("--where: chooses rows of --operators or --phases")
        if self.overheads is not None and self.kernels is None and self.layers is None:
            raise PolicyError("--overheads: goes with --kernels or --layers")

    def over(self, setup: "Setup", link: "Link | None") -> "Scenario":
        """Return the scenario of a setup with the step times of the table."""
        from servetwin.sim.experiments.scenario import Scenario
        from servetwin.sim.step_times.tables import TableProfile

        scenario, deployment = setup.scenario(), setup.deployment
        ranks = deployment.parallel.tensor
        overhead_s, device = deployment.efficiency.overhead_s, deployment.hardware.name
        name, table = self._table(deployment.model, ranks, overhead_s, link, device)
        kv_bytes = deployment.kv_bytes_per_token()
        api, devices = self._api() or setup.api, deployment.parallel.devices
        server = TableProfile(name, table, scenario.policies, kv_bytes, api, device, devices)
        return Scenario(scenario.policies, server, scenario.cluster)

    def alone(self, model_name: str, link: "Link | None") -> "Scenario":
        """Return a scenario of layer times alone: no device says how large its KV memory is."""
        from servetwin.sim.catalogue.catalogue import find_model
        from servetwin.sim.experiments.scenario import Scenario
        from servetwin.sim.step_times.profile import ApiLatencyFit
        from servetwin.sim.step_times.roofline.formats import ACTIVATION_BYTES
        from servetwin.sim.step_times.roofline.server import unlimited_policies
        from servetwin.sim.step_times.tables import TableProfile

        model = find_model(model_name)
        name, table = self._table(model, None, 0.0, link)
        policies = unlimited_policies(model.max_model_len)
        kv_bytes = model.kv_elements_per_token() * ACTIVATION_BYTES
        server = TableProfile(name, table, policies, kv_bytes, self._api() or ApiLatencyFit())
        return Scenario(policies, server)

    def _overheads(self) -> "ServerOverheads | None":
        from servetwin.sim.step_times.tables.server_overheads import parse_overheads

        return None if self.overheads is None else parse_overheads(self.overheads, self.kernels)

    def _api(self) -> "ApiLatencyFit | None":
        overheads = self._overheads()
        return None if overheads is None else overheads.api()

    def _with_overheads(self, table: "KernelTable | LayerTable") -> "Table":
        from servetwin.sim.step_times.tables import LoadedTable

        overheads = self._overheads()
        return table if overheads is None else LoadedTable(table, overheads)

    def _table(
        self,
        model: "ModelShape",
        ranks: int | None,
        overhead_s: float,
        link: "Link | None",
        device: str = "",
    ) -> "tuple[str, Table]":
        from servetwin.sim.step_times.tables import LayerTable, read_layer_bundle

        if self.layers is not None:
            times = read_layer_bundle(self.layers, ranks, linked=link is not None)
            if times.ranks > 1 and link is None:
                raise PolicyError(
                    f"--link-us: layer times of {times.ranks} ranks hold no messages between them; "
                    "give latency and bandwidth of their link, --link-us and --link-gb-per-s"
                )
            return times.name, self._with_overheads(LayerTable(times, model, link))
        if self.kernels is not None:
            from servetwin.sim.step_times.tables import KernelTable
            from servetwin.sim.step_times.tables.kernel_table import open_kernels

            kernels, said = open_kernels(model.name, device, self.kernels, ranks or 1)
            table = self._with_overheads(KernelTable(kernels, said))
            return f"{model.name} on {device}, {self.kernels}", table
        if self.operators is not None:
            return self._operator_table(model, ranks or 1, overhead_s)
        return self._phase_table(ranks or 1)

    def _rows(self) -> dict[str, str]:
        from servetwin.workloads.key_values import key_value

        return dict(key_value(text, "--where", form="COLUMN=VALUE") for text in self.where)

    def _operator_table(
        self, model: "ModelShape", ranks: int, overhead_s: float
    ) -> "tuple[str, Table]":
        from servetwin.sim.step_times.tables import OperatorTable

        assert self.operators is not None
        table = OperatorTable.read(
            *self.operators,
            layers=model.layer_count,
            tensor_parallel=ranks,
            overhead_s=overhead_s,
            where=self._rows(),
        )
        return self.operators[0].parent.name or "operators", table

    def _phase_table(self, ranks: int) -> "tuple[str, Table]":
        from servetwin.sim.step_times.tables import PhaseTable

        assert self.phases is not None
        where = self._rows()
        if unknown := where.keys() - {"model", "hardware"}:
            raise PolicyError(f"--where: {min(unknown)!r}; a phase table has model, hardware")
        table = PhaseTable.read(
            self.phases,
            model=where.get("model"),
            hardware=where.get("hardware"),
            tensor_parallel=ranks if ranks > 1 else None,
        )
        return self.phases.stem, table


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
    without: Annotated[
        tuple[str, ...], Option(metavar="NAME:KEY=VALUE,...", help="{server.without}")
    ] = ()
    efficiency: Annotated[
        str | None, Option(metavar="NAME=VALUE,...", help="{server.efficiency}")
    ] = None
    tables: TableOptions = field(default_factory=TableOptions)

    def base(self, link: "Link | None" = None) -> "Scenario":
        """Return the servers with the policies that they bring, their techniques on and off.

        Raises as ``servers`` does.
        """
        return self.servers(link).scenario()

    def servers(self, link: "Link | None" = None) -> "Servers":
        """Return the servers that settings can be laid over; ``link`` joins ranks of layers.

        Raises ``PolicyError`` for options that do not go together.
        """
        from servetwin.app.scenario.servers import Servers, ToggledServer
        from servetwin.sim.experiments.scenario import ClusterConfig, Scenario
        from servetwin.sim.step_times.profile import DEFAULT_PROFILE
        from servetwin.sim.step_times.server_model import load_server
        from servetwin.sim.techniques.registry import build_setup, parse_efficiency

        self._check()
        if self.model is None:
            profiles = [load_server(name) for name in self.profiles or (DEFAULT_PROFILE,)]
            first, *more = profiles
            return Servers(Scenario(first.policy_config(), first, ClusterConfig(), tuple(more)))
        if self.hardware is None:
            return Servers(self.tables.alone(self.model, link))
        efficiency = parse_efficiency(self.efficiency or "")
        setup = build_setup(self.model, self.hardware, efficiency=efficiency)
        toggles, tables = self.toggles(), self.tables

        def finish(setup: "Setup") -> "Scenario":
            return tables.over(setup, link) if tables.given else setup.scenario()

        return Servers(ToggledServer(setup, toggles, finish))

    def toggles(self) -> "Toggles":
        """Return the techniques on and off."""
        from servetwin.sim.techniques.registry import Toggles

        return Toggles.of(self.techniques, self.without)

    def names_no_server(self) -> bool:
        """Return whether the options name techniques at most, and no server."""
        return replace(self, techniques=(), without=()) == ServerOptions()

    def with_toggles(self, over: "ServerOptions") -> "ServerOptions":
        """Return these servers with the techniques of ``over`` on and off, which win."""
        named = {technique_name(text) for text in (*over.techniques, *over.without)}
        kept, gone = (
            tuple(text for text in texts if technique_name(text) not in named)
            for texts in (self.techniques, self.without)
        )
        removed = {technique_name(text) for text in self.techniques}
        without = tuple(
            text
            for text in over.without
            if technique_name(text) not in removed or has_opposite(text)
        )
        return replace(self, techniques=(*kept, *over.techniques), without=(*gone, *without))

    def record(self) -> dict[str, object]:
        """Return what ``scenario.yaml`` says of the servers."""
        from servetwin.sim.step_times.profile import DEFAULT_PROFILE

        if self.model is None:
            names = self.profiles or (DEFAULT_PROFILE,)
            return {"profile": names[0] if len(names) == 1 else list(names)}
        return {
            "model": self.model,
            "hardware": self.hardware,
            "techniques": list(self.techniques),
            "without": list(self.without),
            "efficiency": self.efficiency,
            "tables": self.tables.sources,
            "overheads": self.tables.overheads,
        }

    def check_absent(self, *allowed: str) -> None:
        """Raise ``PolicyError`` for an option that only a recorded run takes, but for ``allowed``.

        These are names of options.
        """
        toggles = {"technique": self.techniques, "without": self.without}
        given = {"hardware": self.hardware, **toggles, **asdict(self.tables)}
        for name, value in given.items():
            if value not in (None, ()) and name not in allowed:
                raise PolicyError(f"--{name}: goes with --recorded")

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
        for option, value in (
            ("technique", self.techniques), ("without", self.without),
            ("efficiency", self.efficiency),
        ):  # fmt: skip
            if value and self.hardware is None:
                raise PolicyError(f"--{option}: needs --model and --hardware")


def technique_name(text: str) -> str:
    """Return the name of a technique, without its parameters."""
    from servetwin.workloads.plugins import split_settings

    return split_settings(text)[0]


def has_opposite(text: str) -> bool:
    """Return whether a technique has an opposite, so that leaving it out may not be enough."""
    from servetwin.sim.techniques.registry import find_technique
    from servetwin.sim.techniques.technique import Technique

    return type(find_technique(text)).off is not Technique.off
