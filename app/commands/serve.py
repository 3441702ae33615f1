"""``servetwin serve``: an OpenAI-compatible API over the bundled engine, a simulator or a mock."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from app.scenario import mock_options, options
from app.scenario.options import EngineChoice, PolicyOptions

if TYPE_CHECKING:
    from app.scenario.servers import ServerOptions
    from engine.core.core_process import BuildCore


class Served(NamedTuple):
    """What is served: a model under policies, and what makes its core."""

    model: str
    policies: str
    build: "BuildCore"


def serve(
    context: typer.Context,
    model: Annotated[
        str | None, typer.Option(help="Model preset; with --hardware, a model of the catalogue.")
    ] = None,
    simulated: Annotated[
        str | None,
        typer.Option(
            metavar="PROFILE",
            help="Serve the simulator in real time: shipped name or .json path.",
            rich_help_panel="Simulated",
        ),
    ] = None,
    hardware: Annotated[
        str | None,
        typer.Option(
            help="Simulate --model on this device: h100, a100-80gb ...",
            rich_help_panel="Simulated",
        ),
    ] = None,
    technique: options.Techniques = None,
    efficiency: options.EfficiencyText = None,
    mock: mock_options.Mock = False,
    ttft_ms: mock_options.TTFTMs = None,
    itl_ms: mock_options.ITLMs = None,
    tokens: mock_options.Tokens = None,
    fault: mock_options.Faults = None,
    fault_plan: mock_options.FaultPlan = None,
    truth: mock_options.Truth = None,
    batching: options.Batching = None,
    kv: options.KV = None,
    reservation: options.ReservationOption = None,
    prefix_cache: options.PrefixCache = None,
    kv_tokens: options.KVTokens = None,
    block_tokens: options.BlockTokens = None,
    max_model_len: options.MaxModelLen = None,
    max_seqs: options.MaxSeqs = None,
    token_budget: options.TokenBudget = None,
    wait_limit_ms: options.WaitLimitMs = None,
    queue_limit: options.QueueLimit = None,
    preset: options.Preset = None,
    settings: options.Settings = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65535)] = 8000,
    step_log: Annotated[Path | None, typer.Option(help="Step log to write (JSON Lines).")] = None,
    drain_s: Annotated[float, typer.Option(help="Grace for running requests.", min=0)] = 30.0,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: options.Threads = 1,
    seed: options.Seed = 0,
) -> None:
    """Serve the bundled engine, a simulated one or a mock until Ctrl-C; running requests finish."""
    mock_options.check_options(context, mock=mock)
    if mock:
        faults = tuple(fault or ())
        chosen = mock_options.MockOptions(model, ttft_ms, itl_ms, tokens, faults, fault_plan)
        mock_options.serve_mocked(chosen, host, port, truth)
        return
    given = PolicyOptions(
        batching, kv, reservation, prefix_cache, kv_tokens, block_tokens, max_model_len,
        max_seqs, token_budget, wait_limit_ms, queue_limit, preset, tuple(settings or ()),
    )  # fmt: skip
    choice = EngineChoice(model or "base", device, dtype, threads, seed)
    if simulated or hardware or technique or efficiency:
        from app.scenario.servers import ServerOptions

        profiles = [simulated] if simulated else None
        servers = ServerOptions(profiles, model, hardware, tuple(technique or ()), efficiency)
        served = _simulated(servers, given, choice, step_log)
    else:
        served = _bundled(given, choice, step_log)
    serve_core = _serve_core()
    typer.echo(f"starting {served.model} with {served.policies}", err=True)

    def say_ready(url: str) -> None:
        typer.echo(f"serving {served.model} at {url}/v1 (Ctrl-C stops)")

    serve_core(served.build, say_ready, host, port, drain_s)


def _bundled(given: PolicyOptions, choice: EngineChoice, step_log: Path | None) -> Served:
    from engine.core.core_process import bundled
    from engine.serve_options import ServeOptions
    from policies.config import PolicyConfig

    policies = given.over(PolicyConfig())
    options.require_engine()
    chosen = ServeOptions(
        choice.model, policies, threads=choice.threads, device=choice.device, dtype=choice.dtype,
        seed=choice.seed, step_log=step_log,
    )  # fmt: skip
    return Served(choice.model, policies.name, bundled(chosen))


def _simulated(
    servers: "ServerOptions", given: PolicyOptions, choice: EngineChoice, step_log: Path | None
) -> Served:
    from app.twin.simulated_server import simulated_engine
    from workloads.errors import EngineError

    if choice != EngineChoice(choice.model, seed=choice.seed):
        raise EngineError(
            "--device, --dtype, --threads: say how torch computes, and a simulated server has none"
        )
    engine = simulated_engine(servers, given, seed=choice.seed, step_log=step_log)
    return Served(f"a simulated {engine.model}", engine.policies.name, engine.build)


def _serve_core() -> Callable[..., None]:
    from workloads.errors import EngineError

    try:
        from engine.http.serving import serve_core
    except ModuleNotFoundError as error:
        raise EngineError(f"serving needs {error.name}: pip install 'servetwin[engine]'") from error
    return serve_core
