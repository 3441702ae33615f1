"""The options by which several commands say what to simulate: trace, servers, policies, cluster."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app import options
from app.options import PolicyOptions, TraceOptions

if TYPE_CHECKING:
    from app.scenarios import ClusterOptions
    from app.servers import ServerOptions


@dataclass(frozen=True, slots=True)
class Asked:
    """What a command was asked to simulate."""

    trace: TraceOptions
    servers: "ServerOptions"
    policy: PolicyOptions
    cluster: "ClusterOptions"
    seed: int


def takes_scenario(command: Callable[..., None]) -> Callable[..., None]:
    """The command with all options of a scenario in the place of its argument ``asked``."""
    scenario, (_, *own) = _parameters(_asked), _parameters(command)

    @wraps(command)
    def wrapper(**given: Any) -> None:
        asked = _asked(**{p.name: given.pop(p.name) for p in scenario})
        command(asked, **given)

    ordered = sorted([*scenario, *own], key=lambda p: p.default is not p.empty)
    wrapper.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in ordered}
    return wrapper


def _parameters(function: Callable[..., object]) -> list[inspect.Parameter]:
    """Keyword only: the order of the options says nothing."""
    found = inspect.signature(function).parameters.values()
    return [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in found]


def _asked(
    trace: Annotated[Path, typer.Argument(help="Any known trace: a file, or a WEKA directory.")],
    profile: options.Profiles = None,
    model: options.Model = None,
    hardware: options.Hardware = None,
    technique: options.Techniques = None,
    efficiency: options.EfficiencyText = None,
    operators: options.Operators = None,
    phases: options.Phases = None,
    where: options.Where = None,
    preset: options.Preset = None,
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
    settings: options.Settings = None,
    replicas: options.Replicas = None,
    router: options.Router = None,
    staleness_ms: options.StalenessMs = None,
    prefill_decode: options.PrefillDecode = None,
    link_gb_per_s: options.LinkGBPerS = None,
    closed_loop: options.ClosedLoop = None,
    rate_scale: options.RateScale = None,
    rate: options.Rate = None,
    prompt_scale: options.PromptScale = 1.0,
    output_scale: options.OutputScale = 1.0,
    start: options.Start = None,
    end: options.End = None,
    limit: options.Limit = None,
    spread_ties: options.SpreadTies = False,
    session_rate: options.SessionRate = None,
    estimate_cv: options.EstimateCV = None,
    max_bad_rows: options.MaxBadRows = 0,
    seed: options.Seed = 0,
) -> Asked:
    from app.scenarios import ClusterOptions
    from app.servers import ServerOptions

    return Asked(
        TraceOptions(
            trace, max_bad_rows, spread_ties, start, end, limit, prompt_scale, output_scale,
            rate_scale, rate, seed, session_rate, estimate_cv,
        ),
        ServerOptions(
            profile, model, hardware, tuple(technique or ()), efficiency, operators, phases,
            tuple(where or ()),
        ),
        PolicyOptions(
            batching, kv, reservation, prefix_cache, kv_tokens, block_tokens, max_model_len,
            max_seqs, token_budget, wait_limit_ms, queue_limit, preset, tuple(settings or ()),
        ),
        ClusterOptions(
            replicas, router, staleness_ms, prefill_decode, link_gb_per_s, closed_loop
        ),
        seed,
    )  # fmt: skip
