"""Options that choose the servers of a simulation: profiles, data sheets, or tables."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, ClassVar

from typer import Option

from servetwin.app.scenario.options.tables import TableOptions
from servetwin.workloads.errors import PolicyError

if TYPE_CHECKING:
    from servetwin.app.scenario.servers import Servers
    from servetwin.sim.catalogue.hardware import Link
    from servetwin.sim.experiments.scenario import Scenario
    from servetwin.sim.techniques.registry import Toggles
    from servetwin.sim.techniques.setup import Setup


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """A calibrated profile, or a model on a device by its data sheet or by measured tables."""

    PANEL: ClassVar = "Server"

    profiles: Annotated[
        tuple[str, ...],
        Option("--profile", help="{server.profile} Or a step time, path.py:Class. Several: pools."),
    ] = ()
    model: Annotated[str | None, Option(help="{server.model}")] = None
    hardware: Annotated[str | None, Option("--gpu", "--hardware", help="{server.hardware}")] = None
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
    layout: Annotated[str | None, Option(metavar="tp=N,pp=N,dp=N,ep=N")] = None
    """Devices of one server, by width: tensor, pipeline, attention data, experts."""
    server: Annotated[str | None, Option(metavar="NAME@VERSION|COMMAND|FILE")] = None
    """What serves: vllm@0.19, a command line such as 'vllm serve MODEL ...', or a log: its limits
    and its share of the memory."""
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
        from servetwin.app.scenario.deployments import ServerChoice, require_expressed
        from servetwin.app.scenario.servers import Servers, ToggledServer
        from servetwin.sim.experiments.scenario import ClusterConfig, Scenario
        from servetwin.sim.step_times.profile import DEFAULT_PROFILE
        from servetwin.sim.step_times.server_model import load_server
        from servetwin.sim.techniques.registry import build_setup, parse_efficiency

        self._check()
        choice = ServerChoice.of(self.server, self.layout)
        name = self.model or (choice.settings.model if choice.settings else None)
        if name is None:
            profiles = [load_server(name) for name in self.profiles or (DEFAULT_PROFILE,)]
            first, *more = profiles
            return Servers(Scenario(first.policy_config(), first, ClusterConfig(), tuple(more)))
        from servetwin.app.scenario.table_servers import best_tables, layer_server, table_server

        if self.hardware is None:
            return Servers(layer_server(self.tables, name, link, choice.layout))
        efficiency = parse_efficiency(self.efficiency or "")
        setup = with_link(build_setup(name, self.hardware, efficiency=efficiency), link)
        setup, toggles = choice.over(setup), self.toggles()
        tables = best_tables(self.tables, setup, choice.settings)
        if tables.given:
            require_expressed(setup, toggles, tables.given)

        def finish(setup: "Setup") -> "Scenario":
            if not tables.given:
                return setup.scenario()
            return table_server(tables, setup, link, choice.settings)

        return Servers(ToggledServer(setup, toggles, finish, choice.notes(setup)))

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
            "layout": self.layout,
            "server": self.server,
            "times": self.tables.times,
            "overheads": self.tables.overheads,
        }

    def _check(self) -> None:
        self.tables.check()
        if self.model is None and self.hardware is not None and self.server is None:
            raise PolicyError("--model: --model and --gpu go together")
        if self.model is not None and self.hardware is None and self.tables.kind != "layers":
            raise PolicyError("--gpu: --model and --gpu go together")
        if self.model is not None and self.profiles:
            raise PolicyError("--profile: either a profile, or --model and --gpu")
        table = self.tables.kind
        if self.model is None and table and self.server is None:
            needed = "" if table == "layers" else " and --gpu"
            raise PolicyError(f"--times {table}: needs --model{needed}")
        for option, value in (
            ("technique", self.techniques), ("without", self.without),
            ("efficiency", self.efficiency), ("server", self.server),
        ):  # fmt: skip
            if value and self.hardware is None:
                raise PolicyError(f"--{option}: needs --model and --gpu")
        if self.layout is not None and self.model is None and self.server is None:
            raise PolicyError("--layout: needs --model")


def with_link(setup: "Setup", link: "Link | None") -> "Setup":
    """Return a setup whose devices have a link of a name or of curves, if that is given."""
    from servetwin.sim.catalogue.links import MeasuredLink

    deployment = setup.deployment
    if not isinstance(link, MeasuredLink):
        return setup
    link.require_below(deployment.hardware.link_bytes_per_s, deployment.hardware.name)
    return setup.with_deployment(parallel=replace(deployment.parallel, link=link))


def technique_name(text: str) -> str:
    """Return the name of a technique, without its parameters."""
    from servetwin.workloads.plugins import split_settings

    return split_settings(text)[0]


def has_opposite(text: str) -> bool:
    """Return whether a technique has an opposite, so that leaving it out may not be enough."""
    from servetwin.sim.techniques.registry import find_technique
    from servetwin.sim.techniques.technique import Technique

    return type(find_technique(text)).off is not Technique.off
