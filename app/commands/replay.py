"""``servetwin replay``: simulate a trace under a policy, on a profile."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app import options
from app.options import PolicyOptions, TraceOptions

if TYPE_CHECKING:
    from policies.config import PolicyConfig
    from sim.profile import Profile
    from sim.run import Run
    from workloads.trace import Trace

AUTO_REPLICATION_BUDGET_S = 5.0
AUTO_REPLICATIONS = 10


def replay(
    trace: Annotated[Path, typer.Argument(help="Azure CSV, Mooncake JSONL or our JSON Lines.")],
    profile: Annotated[str, typer.Option(help="Shipped name or .json path.")] = "base-cpu",
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
    rate_scale: options.RateScale = None,
    rate: options.Rate = None,
    prompt_scale: options.PromptScale = 1.0,
    output_scale: options.OutputScale = 1.0,
    start: options.Start = None,
    end: options.End = None,
    limit: options.Limit = None,
    spread_ties: options.SpreadTies = False,
    max_bad_rows: options.MaxBadRows = 0,
    replications: Annotated[
        int | None, typer.Option(help="Simulations behind the intervals; 0 for none.")
    ] = None,
    seed: options.Seed = 0,
    out: options.Out = None,
    json: options.Json = False,
) -> None:
    """Simulate TRACE under a policy and print TTFT, TPOT, throughput with their intervals."""
    from sim.profile import load_profile

    fitted = load_profile(profile)
    requests = TraceOptions(
        trace, max_bad_rows, spread_ties, start, end, limit, prompt_scale, output_scale,
        rate_scale, rate, seed,
    ).read()  # fmt: skip
    policy = PolicyOptions(
        batching, kv, reservation, prefix_cache, kv_tokens, block_tokens, max_model_len,
        max_seqs, token_budget, wait_limit_ms, queue_limit,
    )  # fmt: skip
    config = _fit_to_trace(policy.over(fitted.policy_config()), requests, policy)
    run = _simulate_with_progress(requests, config, fitted, seed)
    run.scenario = {
        "trace": requests.source,
        "notes": list(requests.notes),
        "profile": fitted.name,
        "policies": config.as_dict(),
        "seed": seed,
    }
    if out:
        _save(run, out)
    summary = run.summary()
    intervals = _intervals(requests, config, fitted, seed, _affordable(run, replications))
    if json:
        import json as json_module

        typer.echo(json_module.dumps({**summary, "intervals": intervals, **run.scenario}))
        return
    for line in _report(run, summary, intervals, fitted, config):
        typer.echo(line)
    if out:
        typer.echo(f"run folder: {out}")


def _fit_to_trace(config: "PolicyConfig", trace: "Trace", given: PolicyOptions) -> "PolicyConfig":
    """Without ``--max-model-len``, the model length grows to the trace's longest request."""
    from dataclasses import replace

    longest = max((request.total_tokens for request in trace), default=0)
    if given.max_model_len is not None or longest <= config.max_model_len:
        return config
    grown = 1 << (longest - 1).bit_length()
    typer.echo(
        f"note: the trace's longest request has {longest} tokens; model length raised from "
        f"{config.max_model_len} to {grown} (--max-model-len sets it)",
        err=True,
    )
    return replace(config, max_model_len=grown)


def _simulate_with_progress(
    trace: "Trace", config: "PolicyConfig", profile: "Profile", seed: int
) -> "Run":
    from app.progress import progress
    from sim.predict import predict_once

    with progress(f"simulating {config.name}", total=len(trace)) as advance:
        return predict_once(trace, config, profile, seed=seed, on_arrival=advance)


def _affordable(run: "Run", asked: int | None) -> int:
    if asked is not None:
        return asked
    wall_s = run.extra["simulation"]["wall_s"]
    return AUTO_REPLICATIONS if wall_s * AUTO_REPLICATIONS < AUTO_REPLICATION_BUDGET_S else 0


def _intervals(
    trace: "Trace", config: "PolicyConfig", profile: "Profile", seed: int, replications: int
) -> dict[str, Any]:
    from sim.predict import predict

    if not replications:
        return {}
    prediction = predict(trace, config, profile, seed=seed, replications=replications)
    metrics = [f"{name}.{part}" for name in ("ttft_s", "tpot_s", "e2e_s") for part in _PARTS]
    found = {m: prediction.interval(m) for m in (*metrics, "output_throughput_tokens_per_s")}
    return {
        metric: {"median": i.value, "p5": i.low, "p95": i.high} for metric, i in found.items() if i
    }


_PARTS = ("mean", "p50", "p90", "p99")


def _report(
    run: "Run",
    summary: Mapping[str, Any],
    intervals: Mapping[str, Any],
    profile: "Profile",
    config: "PolicyConfig",
) -> list[str]:
    from app.tables import counts_line, latency_table, note_lines

    speed = summary["simulation"]
    machine = profile.machine.get("processor", "unknown machine")
    engine = f"{profile.engine.get('model', '?')} on {machine}"
    lines = [
        f"{run.scenario['trace']}: {config.name}, {config.kv_tokens} KV tokens, at most "
        f"{config.max_seqs} sequences",
        f"profile {profile.name} ({profile.origin}: {engine})",
        *note_lines(run.scenario["notes"]),
        counts_line(summary["requests"]),
        "",
        *latency_table(summary, intervals),
        "",
        f"output throughput {summary['output_throughput_tokens_per_s'] or 0:.1f} tokens/s over "
        f"{summary['makespan_s']:.1f} s, prefix hits "
        f"{100 * (summary['prefix_hit_rate_tokens'] or 0):.2f} % of prompt tokens, "
        f"{summary['preemptions']} preemptions",
        f"simulated {speed['steps']} steps in {speed['wall_s']:.2f} s "
        f"({speed['requests_per_s']:.0f} requests/s)",
    ]
    if not intervals:
        lines.append("no intervals (a long run): --replications 10 computes them")
    return lines


def _save(run: "Run", out: Path) -> None:
    from sim.run import machine_facts

    run.meta = machine_facts()
    run.save(out)
