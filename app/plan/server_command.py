"""The command that starts a server, with the flags of a layout: printed, and simulated as read."""

import json
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template

from servetwin.app.scenario.options.deployment import Deployment
from servetwin.app.words import asset
from servetwin.sim.catalogue.hub_names import hub_models, plain_name
from servetwin.sim.catalogue.layout import Layout
from servetwin.sim.catalogue.servers import ServerSettings, read_server
from servetwin.sim.catalogue.servers.settings import Flags, layout_roles
from servetwin.workloads.errors import PolicyError

_STARTS = {"vllm": "vllm serve", "sglang": "python3 -m sglang.launch_server --model-path"}


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """The words that start a server of ``model`` (a name that servetwin knows)."""

    model: str
    settings: ServerSettings
    words: tuple[str, ...]

    @classmethod
    def of(cls, server: str, model: str) -> "ServerCommand":
        """Return the command of a server by its name, or a command line, whose flags it keeps.

        Raises ``PolicyError`` for a server whose command is not known here.
        """
        settings = read_server(server)
        if settings.backend not in _STARTS:
            raise PolicyError(
                f"--server: {settings.backend} is not planned; {' or '.join(_STARTS)}"
            )
        line = server.strip()
        if " " not in line:
            line = f"{_STARTS[settings.backend]} {shlex.quote(served_name(model))}"
        return cls(model, settings, tuple(shlex.split(line.replace("\\\n", " "))))

    def on(self, layout: Layout, **limits: int | None) -> "ServerCommand":
        """Return the command with the flags of a layout, and limits that are not None."""
        backend = self.settings.backend
        given = {name: limit for name, limit in limits.items() if limit is not None}
        flags = Flags.of(backend).words(layout_roles(backend, layout) | given)
        return replace(self, words=(*self.words, *flags))

    @property
    def text(self) -> str:
        """The command as a shell takes it."""
        return shlex.join(self.words)

    @property
    def image(self) -> str:
        """The container image, of the version if it is known."""
        tag = f"v{self.settings.version}" if self.settings.version else "latest"
        return f"{Flags.of(self.settings.backend).image}:{tag}"

    def deployment(self, gpu: str) -> Deployment:
        """Return the deployment that reads the command in its image."""
        server = f"docker run {self.image} {self.text}"
        return Deployment(model=self.model, gpu=gpu, server=server)

    def apart(self) -> dict[str, "ServerCommand"]:
        """Return the command of a prefill and of a decode server, by phase."""
        flags = Flags.of(self.settings.backend).apart
        return {phase: replace(self, words=(*self.words, *more)) for phase, more in flags.items()}

    def manifest(self, name: str, gpu: str, devices: int, servers: int) -> str:
        """Return a Deployment and a Service of Kubernetes, as YAML."""
        return Template(asset("kubernetes.yaml")).substitute(
            name=f"{self.settings.backend}-{name}", gpu=gpu, servers=servers, image=self.image,
            command=json.dumps([*self.words, "--host", "0.0.0.0", "--port", "8000"]),
            vendor="amd" if gpu.startswith("mi") else "nvidia", devices=devices,
        )  # fmt: skip


def served_name(model: str) -> str:
    """Return the name under which the hub has a model; of a path, the folder of the model."""
    if model.endswith(".json"):
        return str(Path(model).parent)
    names = [name for name in hub_models() if plain_name(name) == plain_name(model)]
    return model if "/" in model else next(iter(names), model)
