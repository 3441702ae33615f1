"""A deployment: a model on devices as a server runs it, and by what evidence it is simulated."""

from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from typer import Option

from servetwin.app.scenario.options.tables import TableOptions
from servetwin.workloads.errors import PolicyError

if TYPE_CHECKING:
    from servetwin.app.scenario.servers import Servers
    from servetwin.sim.catalogue.hardware import Link
    from servetwin.sim.experiments.scenario import Scenario
    from servetwin.sim.techniques.registry import Toggles
    from servetwin.sim.techniques.setup import Setup

_TOGGLES = ("techniques", "without")
_OF_A_GPU = {*_TOGGLES, "efficiency", "server"}


@dataclass(frozen=True, slots=True)
class Deployment(TableOptions):
    """A model on devices as a server runs it, or a calibrated profile.

    The same words are options, and the keys of ``deployment`` in a scenario file.
    """

    PANEL: ClassVar = "Deployment"
    __pydantic_config__: ClassVar = {"extra": "forbid", "allow_inf_nan": False}

    profile: Annotated[tuple[str, ...], Option()] = ()
    """Instead of a model and a GPU, a calibrated profile: a shipped name, the path of a .json file,
    or a step time, path.py:Class. Several: pools."""
    model: Annotated[str | None, Option()] = None
    """Model by its name, or the path of a config.json."""
    gpu: Annotated[str | None, Option("--gpu", "--hardware")] = None
    """Device that the model runs on: h100, a100-80gb ..."""
    layout: Annotated[str | None, Option(metavar="tp=N,pp=N,dp=N,ep=N")] = None
    """Devices of one server, by width: tensor, pipeline, attention data, experts."""
    server: Annotated[str | None, Option(metavar="NAME@VERSION|COMMAND|FILE")] = None
    """What serves: vllm@0.19, a command line such as 'vllm serve MODEL ...', or a log: its limits
    and its share of the memory."""
    link: Annotated[str | None, Option(metavar="MACHINE|FILE")] = None
    """Link between the devices of one server: a machine such as dgx-h100, or measured curves."""
    techniques: Annotated[tuple[str, ...], Option("--technique", metavar="NAME:KEY=VALUE,...")] = ()
    """Techniques, applied to the model in turn: tensor-parallel:ways=2, weight-int4 ... Or
    path.py:Class."""
    without: Annotated[tuple[str, ...], Option(metavar="NAME:KEY=VALUE,...")] = ()
    """Techniques of the server itself that are taken away: kv-cache, flash-attention ..."""
    efficiency: Annotated[str | None, Option(metavar="NAME=VALUE,...")] = None
    """Achieved shares of the data sheet's peaks: compute=0.7,memory=0.85,overhead_s=0.001. Default:
    what the server reached on the device in published runs, or vLLM where none is named."""

    def scenario(self, link: "Link | None" = None) -> "Scenario":
        """Return the servers with the policies that they bring, their techniques on and off.

        Raises as ``servers`` does.
        """
        return self.servers(link).scenario()

    def servers(self, link: "Link | None" = None) -> "Servers":
        """Return the servers that settings can be laid over; ``link`` where none is named.

        Raises ``PolicyError`` for options that do not go together.
        """
        from servetwin.app.scenario.servers import Servers, ToggledServer
        from servetwin.sim.experiments.scenario import ClusterConfig, Scenario
        from servetwin.sim.step_times.server_model import load_server

        self.require_named()
        self.check()
        if self.profile:
            first, *more = [load_server(profile) for profile in self.profile]
            return Servers(Scenario(first.policy_config(), first, ClusterConfig(), tuple(more)))
        from servetwin.app.scenario.deployments import as_served, require_expressed
        from servetwin.sim.catalogue.layout import Layout
        from servetwin.sim.catalogue.links import find_link
        from servetwin.sim.catalogue.servers import read_server
        from servetwin.sim.techniques.registry import build_setup, parse_efficiency

        server = read_server(self.server) if self.server else None
        layout = Layout.parse(self.layout) if self.layout else None
        name = self.model or (server.model if server else None)
        if name is None:
            raise PolicyError(f"--server: {self.server} names no model; add --model")
        from servetwin.app.scenario.table_servers import best_tables, layer_server, table_server

        link = find_link(self.link) if self.link else link
        if self.gpu is None:
            return Servers(layer_server(self, name, link, layout))
        efficiency = parse_efficiency(self.efficiency or "")
        setup = with_link(build_setup(name, self.gpu, efficiency=efficiency), link)
        setup, toggles = as_served(setup, server, layout), self.toggles()
        options = {"link": self.link, "efficiency": self.efficiency}
        require = partial(require_expressed, setup, toggles, options)
        tables = best_tables(self, setup, server, require)

        def finish(setup: "Setup") -> "Scenario":
            return table_server(tables, setup, link, server) if tables.given else setup.scenario()

        notes = tuple(server.notes) if server else ()
        return Servers(ToggledServer(setup, toggles, finish, notes))

    def toggles(self) -> "Toggles":
        """Return the techniques on and off."""
        from servetwin.sim.techniques.registry import Toggles

        return Toggles.of(self.techniques, self.without)

    def settings(self) -> dict[str, Any]:
        """Return the options that are given, as a scenario file and a run have them."""
        values = ((field, getattr(self, field.name)) for field in fields(self))
        texts = {
            field.name: list(value) if isinstance(value, tuple) else value
            for field, value in values
            if value != field.default
        }
        return texts | ({"profile": self.profile[0]} if len(self.profile) == 1 else {})

    def names_no_server(self) -> bool:
        """Return whether the options name techniques at most, and no server."""
        return replace(self, techniques=(), without=()) == Deployment()

    def over(self, base: "Deployment") -> "Deployment":
        """Return ``base`` under the options that are given here, which win one by one.

        A profile takes the place of all of ``base``, and a model, a GPU or a server that of its
        profile.
        """
        given = {name: getattr(self, name) for name in self.settings() if name not in _TOGGLES}
        if self.profile:
            base = Deployment()
        elif self.model or self.gpu or self.server:
            base = replace(base, profile=())
        named = {technique_name(text) for text in (*self.techniques, *self.without)}
        kept, gone = (
            tuple(text for text in texts if technique_name(text) not in named)
            for texts in (base.techniques, base.without)
        )
        removed = {technique_name(text) for text in base.techniques}
        without = tuple(
            text
            for text in self.without
            if technique_name(text) not in removed or has_opposite(text)
        )
        given |= {"techniques": (*kept, *self.techniques), "without": (*gone, *without)}
        return replace(base, **given)

    def require_named(self, source: str = "") -> None:
        """Raise ``PolicyError`` where nothing names a server; ``source`` begins the message."""
        if self == Deployment():
            how = "add --model llama-3-8b --gpu h100, or --profile base-cpu for the bundled engine"
            raise PolicyError(f"{source}no server is named: {how}")

    def check(self) -> None:
        """Raise ``PolicyError`` for options that do not go together; read no file."""
        TableOptions.check(self)
        given = self.settings()
        if self.profile:
            if len(given) > 1:
                raise PolicyError("--profile: either a profile, or --model and --gpu")
        elif given and not (self.model or self.server):
            option = next(iter(given)).replace("techniques", "technique")
            gpu = "" if self.gpu or self.kind == "layers" else " and --gpu"
            raise PolicyError(f"--{option}: needs --model{gpu}")
        elif given and not self.gpu and (self.kind != "layers" or given.keys() & _OF_A_GPU):
            raise PolicyError("--gpu: --model and --gpu go together")
        if self.layout is not None:
            from servetwin.sim.catalogue.layout import Layout

            Layout.parse(self.layout)


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
