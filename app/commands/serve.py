"""``servetwin serve``: an OpenAI-compatible API over the bundled engine, a simulator or a mock."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from typer import Option

from servetwin.app.scenario.options.common import Seed
from servetwin.app.scenario.options.engine import EngineChoice, HttpOptions, require_engine
from servetwin.app.scenario.options.groups import Only, takes_options
from servetwin.app.scenario.options.mock import MockOptions, check_options
from servetwin.app.scenario.options.policy import PolicyOptions
from servetwin.app.scenario.options.server import ServerOptions
from servetwin.workloads.errors import EngineError

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


@takes_options(
    "--model", "--simulated", "--mock", "--batching", "--kv", "--device", "--host", "--port",
)  # fmt: skip
def serve(
    context: typer.Context,
    mock: MockOptions,
    servers: Annotated[ServerOptions, Only("hardware", "techniques", "without", "efficiency")],
    policy: PolicyOptions,
    engine: Annotated[
        EngineChoice,
        Only("device", "dtype", "threads", "adapter", "kv_memory_share", "n_gram_drafts"),
    ],
    http: HttpOptions,
    model: Annotated[
        str | None,
        Option(
            help="Model preset, or the folder of a checkpoint; with --hardware, a model of the "
            "catalogue."
        ),
    ] = None,
    simulated: Annotated[
        str | None,
        Option(
            metavar="PROFILE",
            help="Serve the simulator in real time: shipped name or .json path.",
            rich_help_panel=ServerOptions.PANEL,
        ),
    ] = None,
    step_log: Annotated[Path | None, Option(help="Step log to write (JSON Lines).")] = None,
    seed: Seed = 0,
) -> None:
    """Serve the bundled engine, a simulated one or a mock until Ctrl-C; running requests finish."""
    check_options(context, mock=mock.mock)
    if mock.mock:
        replace(mock, model=model).serve(http.host, http.port)
        return
    policy.require_one_server()
    engine = replace(engine, model=model or "base", seed=seed)
    if simulated or not servers.names_no_server():
        servers = replace(servers, profiles=(simulated,) if simulated else (), model=model)
        served = _simulated(servers, policy, engine, step_log)
    else:
        served = _bundled(policy, engine, servers, step_log)
    _serve(served, http)


def _serve(served: Served, http: HttpOptions) -> None:
    """Start the core, which imports torch, and meanwhile what the HTTP process needs."""
    from servetwin.engine.core.core_process import started_core

    typer.echo(f"starting {served.model} with {served.policies}", err=True)

    def say_ready(url: str) -> None:
        typer.echo(f"serving {served.model} at {url}/v1 (Ctrl-C stops)")

    with started_core(served.build) as core:
        try:
            from servetwin.engine.http.serving import serve_core
        except ModuleNotFoundError as error:
            raise EngineError(
                f"serving needs {error.name}: pip install 'servetwin[engine]'"
            ) from error
        serve_core(
            served.build, served.name, http.settings(), say_ready, served.tokenizer, first=core
        )


def _bundled(
    policy: PolicyOptions, choice: EngineChoice, servers: ServerOptions, step_log: Path | None
) -> Served:
    from servetwin.app.scenario.scenarios import unread_settings
    from servetwin.engine.checkpoint.find_model import find_model
    from servetwin.engine.core.core_process import bundled

    model = find_model(choice.model)
    policies = policy.over(choice.policies())
    require_engine()
    toggles = servers.toggles()
    options = choice.options(policies, toggles, step_log)
    notes = list(unread_settings(options.policies))
    if not toggles.is_empty():
        from servetwin.app.serving.techniques import notes as technique_notes

        notes += technique_notes(choice.options(policies), toggles, policy.changes())
    _say(notes)
    shown = (options.model_config().name, model.config.name)
    return Served(*shown, options.policies.name, bundled(options), model.tokenizer())


def _simulated(
    servers: ServerOptions, policy: PolicyOptions, choice: EngineChoice, step_log: Path | None
) -> Served:
    from servetwin.app.scenario.scenarios import unread_settings
    from servetwin.app.serving.simulated import simulated_engine
    from servetwin.engine.text.byte_tokenizer import ByteTokenizer

    if choice != EngineChoice(choice.model, seed=choice.seed):
        raise EngineError(
            "--device, --dtype, --threads, --adapter, --kv-memory-share, --n-gram-drafts: say how "
            "torch computes, and a simulated server has none"
        )
    engine = simulated_engine(servers, policy, seed=choice.seed, step_log=step_log)
    _say((*policy.laid_on(servers.servers()).notes(), *unread_settings(engine.policies)))
    return Served(
        f"a simulated {engine.model}",
        engine.model,
        engine.policies.name,
        engine.build,
        ByteTokenizer(),
    )


def _say(notes: Iterable[str]) -> None:
    for note in notes:
        typer.echo(f"note: {note}", err=True)
