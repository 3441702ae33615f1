"""Options of the bundled engine, and of all that ``servetwin serve`` serves."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer
from typer import Option

from servetwin.app.scenario.options.common import Seed
from servetwin.workloads.errors import EngineError, PolicyError

if TYPE_CHECKING:
    from servetwin.engine.drafting.drafts import Drafts
    from servetwin.engine.http.http_settings import HttpSettings
    from servetwin.engine.models.computation import Computation
    from servetwin.engine.serve_options import ServeOptions
    from servetwin.loadtest.mock.plan import MockPlan
    from servetwin.policies.config import PolicyConfig
    from servetwin.sim.techniques.registry import Toggles


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """Which bundled engine to start; commands set ``model`` and ``seed``."""

    PANEL: ClassVar = "Engine"

    model: str = "base"
    device: Annotated[str, Option()] = "auto"
    """auto, cpu or cuda."""
    dtype: Annotated[str, Option()] = "auto"
    """auto, float32, bfloat16 or float16."""
    threads: Annotated[int, Option(min=1)] = 1
    """Torch threads."""
    adapter: Annotated[tuple[str, ...], Option(metavar="NAME=FOLDER")] = ()
    """A LoRA adapter that requests may name as their model; repeatable."""
    kv_memory_share: Annotated[float, Option(min=0, max=1)] = 0.0
    """Keep as many KV tokens as fit into this share of the GPU's memory; 0: as many as set."""
    n_gram_drafts: Annotated[int, Option(min=0, max=1_024)] = 0
    """Tokens that each decode drafts by what followed its last tokens before; 0: none."""
    seed: int = 0

    def policies(self) -> "PolicyConfig":
        """Return the default policies, whose contexts are no longer than the model's.

        Raises ``EngineError`` for a model that is not there or that the engine cannot compute.
        """
        from servetwin.engine.checkpoint.find_model import find_model

        return find_model(self.model).policies()

    def computation(self) -> "Computation":
        """Return how the engine computes."""
        from servetwin.engine.models.computation import Computation

        return Computation(
            self.device,
            self.dtype,
            self.threads,
            adapters=self._adapters(),
            kv_memory_share=self.kv_memory_share,
            drafts=self._drafts(),
        )

    def _drafts(self) -> "Drafts":
        from servetwin.engine.drafting.drafts import Drafts

        drafts = self.n_gram_drafts
        return Drafts("n-gram", (1,) * drafts) if drafts else Drafts()

    def _drafted(self, policies: "PolicyConfig") -> "PolicyConfig":
        """Return policies whose decodes verify the drafts; prompts keep their part of a step."""
        drafts = self.n_gram_drafts
        if not drafts:
            return policies
        try:
            return policies.with_drafts(drafts)
        except PolicyError as error:
            raise EngineError(f"--n-gram-drafts {drafts}: {error}") from error

    def _adapters(self) -> tuple[tuple[str, str], ...]:
        """Return (name, folder) of each adapter."""
        folders: dict[str, str] = {}
        for text in self.adapter:
            name, _, folder = text.partition("=")
            if not name or not folder:
                raise EngineError(f"--adapter {text}: must be NAME=FOLDER")
            if name in folders or name == self.model:
                raise EngineError(f"--adapter {text}: the name {name!r} is given twice")
            folders[name] = folder
        return tuple(folders.items())

    def options(
        self,
        policies: "PolicyConfig",
        toggles: "Toggles | None" = None,
        step_log: Path | None = None,
    ) -> "ServeOptions":
        """Return the options of an engine under ``policies``, with techniques off and on.

        Raises ``ServetwinError`` for a technique that it does not run.
        """
        from servetwin.engine.serve_options import ServeOptions

        options = ServeOptions(
            self.model,
            self._drafted(policies),
            computation=self.computation(),
            seed=self.seed,
            step_log=step_log,
        )
        if toggles is None or toggles.is_empty():
            return options
        from servetwin.app.serving.techniques import with_techniques

        return with_techniques(options, toggles)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The model that is served, by the engine or simulated."""

    name: Annotated[str | None, Option("--model")] = None
    """Model preset, or the folder of a checkpoint; with --hardware, a model of the catalogue."""
    simulated: Annotated[str | None, Option(metavar="PROFILE", rich_help_panel="Server")] = None
    """Serve the simulator in real time: shipped name or .json path."""
    step_log: Annotated[Path | None, Option()] = None
    """Step log to write (JSON Lines)."""
    beat: Annotated[bool, Option("--beat")] = False
    """Time a fixed computation between steps and log it, so that verify knows how fast the machine
    is at each moment; costs 3 % of the time."""
    seed: Seed = 0


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Where a served engine listens, and what it allows its clients and its core."""

    PANEL: ClassVar = "HTTP"

    host: Annotated[str, Option()] = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[int, Option(min=0, max=65535)] = 8000
    """Port; 0 takes a free one."""
    drain_s: Annotated[float, Option(min=0)] = 30.0
    """Grace for running requests."""
    max_body: Annotated[float, Option(min=0.001, max=1024, metavar="MIB")] = 8.0
    """Largest body of a request, in MiB."""
    step_limit: Annotated[float, Option(min=0.1, max=86400, metavar="S")] = 60.0
    """Seconds after which a core that ends no step is stalled."""
    max_restarts: Annotated[int, Option(min=0)] = 5
    """Restarts of a core that died, within five minutes."""
    allow_origin: Annotated[tuple[str, ...], Option(metavar="ORIGIN")] = ()
    """Web pages that may call the API, * for all; default: none."""
    api_key_env: Annotated[str | None, Option()] = None
    """Environment variable with the key that clients must send; default: no key."""
    max_client: Annotated[int | None, Option(min=1, metavar="ANSWERS")] = None
    """Unfinished answers of one client; default: 1024 beyond loopback, no limit on loopback."""

    def settings(self) -> "HttpSettings":
        """Return the settings of the server."""
        from servetwin.engine.http.http_settings import HttpSettings
        from servetwin.loadtest.credentials import key_in

        return HttpSettings(
            self.host,
            self.port,
            self.drain_s,
            max_body_bytes=round(self.max_body * (1 << 20)),
            step_limit_s=self.step_limit,
            max_restarts=self.max_restarts,
            allow_origins=self.allow_origin,
            api_key=self.api_key_env and key_in(self.api_key_env),
            max_client_answers=self.max_client,
        )


@dataclass(frozen=True, slots=True)
class MockOptions:
    """A server that sends streams by plan; ``serve`` sets ``model``."""

    PANEL: ClassVar = "Mock"

    mock: Annotated[bool, Option("--mock")] = False
    """Serve streams with set times and faults."""
    ttft_ms: Annotated[float | None, Option()] = None
    """Time to the first token."""
    itl_ms: Annotated[float | None, Option()] = None
    """Time between tokens."""
    tokens: Annotated[int | None, Option()] = None
    """Tokens of an answer at most."""
    lora_module: Annotated[tuple[str, ...], Option(metavar="NAME")] = ()
    """A further model that it serves; repeatable."""
    fault: Annotated[tuple[str, ...], Option(metavar="NAME:KEY=VALUE,...")] = ()
    """What goes wrong: freeze:at_s=2, cut:every=2,after=8, status:code=429 ..."""
    truth: Annotated[Path | None, Option()] = None
    """File (JSON Lines) of what was really sent when."""
    model: str | None = None

    def plan(self) -> "MockPlan":
        """Return the plan of the options. Raises ``PolicyError``."""
        from servetwin.loadtest.mock.plan import mock_plan, parse_fault

        names = ("model", "ttft_ms", "itl_ms", "tokens")
        options = {name: v for name in names if (v := getattr(self, name)) is not None}
        faults = tuple(map(parse_fault, self.fault))
        return mock_plan({**options, "lora_modules": self.lora_module, "faults": faults})

    def serve(self, host: str, port: int) -> None:
        """Serve until Ctrl-C."""
        from servetwin.loadtest.mock.server import serve_mock

        plan, truth = self.plan(), self.truth
        ready = f"serving {plan.model} at {{}}/v1 (Ctrl-C stops)"
        count = serve_mock(plan, host, port, truth, lambda url: typer.echo(ready.format(url)))
        typer.echo(f"{count} requests came" + (f"; the truth is in {truth}" if truth else ""))


def require_engine() -> None:
    """Raise ``EngineError`` with the way to install what is missing of the engine's packages."""
    missing = [n for n in ("torch", "starlette", "uvicorn") if find_spec(n) is None]
    if missing:
        names = ", ".join(missing)
        raise EngineError(f"the bundled engine needs {names}: pip install 'servetwin[engine]'")
