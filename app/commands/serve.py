"""``servetwin serve``: the bundled engine behind an OpenAI-compatible API."""

from pathlib import Path
from typing import Annotated

import typer

from app import options
from app.options import PolicyOptions


def serve(
    model: Annotated[str, typer.Option(help="Model preset.")] = "base",
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
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65535)] = 8000,
    step_log: Annotated[Path | None, typer.Option(help="Step log to write (JSON Lines).")] = None,
    drain_s: Annotated[float, typer.Option(help="Grace for running requests.", min=0)] = 30.0,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: options.Threads = 1,
    seed: options.Seed = 0,
) -> None:
    """Serve the bundled engine until Ctrl-C; running requests may finish."""
    from engine.serve_options import ServeOptions
    from policies.config import PolicyConfig

    policies = PolicyOptions(
        batching, kv, reservation, prefix_cache, kv_tokens, block_tokens, max_model_len,
        max_seqs, token_budget, wait_limit_ms, queue_limit,
    ).over(PolicyConfig())  # fmt: skip
    chosen = ServeOptions(
        model, policies, host, port, threads, device, dtype, seed, step_log, drain_s
    )
    options.require_engine()
    from engine.serving import serve as serve_engine

    typer.echo(f"starting {model} with {policies.name}", err=True)
    serve_engine(chosen, lambda url: typer.echo(f"serving {model} at {url}/v1 (Ctrl-C stops)"))
