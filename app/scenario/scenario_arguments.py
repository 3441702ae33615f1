"""A trace and a scenario by options: what to simulate, for every command that simulates."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.scenario import options
from app.scenario.options import PolicyOptions, TraceOptions

if TYPE_CHECKING:
    from app.scenario.scenarios import ClusterOptions
    from app.scenario.servers import ServerOptions


@dataclass(frozen=True, slots=True)
class Asked:
    """A trace and a scenario as they were asked for."""

    trace: TraceOptions
    servers: "ServerOptions"
    policy: PolicyOptions
    cluster: "ClusterOptions"
    seed: int


def takes_scenario(command: Callable[..., None]) -> Callable[..., None]:
    """``command(asked, ...)`` as typer wants it: with all the options in the place of ``asked``.

    Where the command declares one of them itself, that is what users see; both get its value.
    """
    trace, *shared = inspect.signature(_asked).parameters.values()
    _, *own = inspect.signature(command).parameters.values()
    declared = {p.name: p for p in (trace, *own)}
    declared |= {p.name: p for p in shared if p.name not in declared}

    def with_options(**given: Any) -> None:
        said = {p.name: given[p.name] for p in shared if given[p.name] is not None}
        asked = _asked(given["trace"], **said)
        command(asked, **{p.name: given[p.name] for p in own})

    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in declared.values()]
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {p.name: p.annotation for p in parameters}
    with_options.__name__, with_options.__doc__ = command.__name__, command.__doc__
    return with_options


def _asked(
    trace: options.TracePath,
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
    from app.scenario.scenarios import ClusterOptions
    from app.scenario.servers import ServerOptions

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
        ClusterOptions(replicas, router, staleness_ms, prefill_decode, link_gb_per_s, closed_loop),
        seed,
    )  # fmt: skip
