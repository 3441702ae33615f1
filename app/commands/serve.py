"""``servetwin serve``: an OpenAI-compatible API over the bundled engine, a simulator or a mock."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from servetwin.app.scenario.options.deployment import Deployment
from servetwin.app.scenario.options.engine import (
    EngineChoice,
    HttpOptions,
    MockOptions,
    ServedModel,
    require_engine,
)
from servetwin.app.scenario.options.groups import given, require_absent, takes_options
from servetwin.app.scenario.options.policy import PolicyOptions
from servetwin.workloads.errors import EngineError
from servetwin.workloads.program.child import Child, started_child

if TYPE_CHECKING:
    from servetwin.engine.core.core_process import BuildCore
    from servetwin.engine.text.tokenizer import Tokenizer


class Served(NamedTuple):
    """What is served: a model (as it is printed, and as clients name it) under policies."""

    model: str
    name: str
    policies: str
    build: "BuildCore"
    tokenizer: "Tokenizer"


SERVED = ("gpu", "techniques", "without", "efficiency")
# The core's process begins with its imports before this one has read the options.
CORE, IMPORTS = "servetwin.engine.core.core_process:run_core", "servetwin.engine.core.build"


@takes_options(
    "--model", "--simulated", "--mock", "--batching", "--kv", "--device", "--host", "--port",
)  # fmt: skip
def serve(
    mock: MockOptions,
    servers: Annotated[Deployment, SERVED],
    policy: PolicyOptions,
    engine: EngineChoice,
    http: HttpOptions,
    model: ServedModel,
) -> None:
    """Serve the bundled engine, a simulated one or a mock until Ctrl-C; running requests finish."""
    if mock.mock:
        options = {
            **given(servers), **given(policy), **given(engine), **given(http), **given(model),
        }  # fmt: skip
        for name in ("--host", "--port", "--model"):
            options.pop(name, None)
        require_absent(options, "not with --mock, which has no engine")
        replace(mock, model=model.name).serve(http.host, http.port)
        return
    require_absent(given(mock), "only with --mock")
    policy.require_one_server()
    engine = replace(engine, model=model.name or "base", seed=model.seed)
    if model.simulated:
        named = {"--model": model.name, **given(servers)}
        require_absent(named, "not with --simulated, whose profile is a server")
    if model.simulated or not servers.names_no_server():
        profiles = (model.simulated,) if model.simulated else ()
        servers = replace(servers, profile=profiles, model=model.name)
        with started_child(CORE, name="servetwin-core") as child:
            _serve(_simulated(servers, policy, engine, model), http, child)
        return
    require_engine()
    with started_child(CORE, IMPORTS, name="servetwin-core") as child:
        _serve(_bundled(policy, engine, servers, model), http, child)


def _serve(served: Served, http: HttpOptions, child: Child) -> None:
    """Let the process of the core build it, and meanwhile import what the HTTP process needs."""
    from servetwin.engine.core.core_process import StartedCore

    typer.echo(f"starting {served.model} with {served.policies}", err=True)

    def say_ready(url: str) -> None:
        typer.echo(f"serving {served.model} at {url}/v1 (Ctrl-C stops)")

    core = StartedCore.of(child, served.build)
    try:
        from servetwin.engine.http.serving import serve_core
    except ModuleNotFoundError as error:
        raise EngineError(f"serving needs {error.name}: pip install 'servetwin[engine]'") from error
    serve_core(served.build, served.name, http.settings(), say_ready, served.tokenizer, first=core)


def _bundled(
    policy: PolicyOptions, choice: EngineChoice, servers: Deployment, served: ServedModel
) -> Served:
    from servetwin.engine.checkpoint.find_model import find_model
    from servetwin.engine.core.core_process import bundled

    model = find_model(choice.model)
    policies = policy.over(choice.policies())
    toggles = servers.toggles()
    options = choice.options(policies, toggles, served.step_log)
    options = replace(options, beat=served.beat)
    if not toggles.is_empty():
        from servetwin.app.serving.techniques import notes
        from servetwin.app.words import print_notes

        print_notes(notes(choice.options(policies), toggles, policy.changes()))
    shown = (options.model_config().name, model.config.name)
    return Served(*shown, options.policies.name, bundled(options), model.tokenizer())


def _simulated(
    servers: Deployment, policy: PolicyOptions, choice: EngineChoice, served: ServedModel
) -> Served:
    from servetwin.app.serving.simulated import simulated_engine
    from servetwin.app.words import print_notes
    from servetwin.engine.text.byte_tokenizer import ByteTokenizer

    require_absent(given(choice), "says how torch computes, and a simulated server has none")
    engine = simulated_engine(servers, policy, seed=choice.seed, step_log=served.step_log)
    print_notes(policy.laid_on(servers.servers()).notes())
    names = (f"a simulated {engine.model}", engine.model, engine.policies.name)
    return Served(*names, engine.build, ByteTokenizer())
