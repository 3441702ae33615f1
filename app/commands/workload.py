"""``servetwin workload``: look at, make and convert request traces."""

import json
from collections.abc import Mapping
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from app import options
from app.options import TraceOptions

if TYPE_CHECKING:
    from workloads.arrivals import ArrivalProcess
    from workloads.lengths import LengthLaw, TokenLaw
    from workloads.prefixes import PrefixGroups
    from workloads.trace import Trace

workload_app = typer.Typer(help="Look at, make and convert request traces.", no_args_is_help=True)

TraceArgument = Annotated[Path, typer.Argument(help="Azure CSV, Mooncake JSONL or our JSON Lines.")]
Arrivals = Literal["poisson", "constant", "gamma"]

WIDTH = 100
_FIGURES = ("mean", "p50", "p90", "p99", "max")


@workload_app.command()
def stats(
    trace: TraceArgument,
    spread_ties: options.SpreadTies = False,
    max_bad_rows: options.MaxBadRows = 0,
    seed: options.Seed = 0,
    as_json: options.Json = False,
) -> None:
    """Print rows, rate, burstiness, lengths and ideal prefix hits of TRACE."""
    from workloads.statistics import statistics

    read = TraceOptions(trace, max_bad_rows, spread_ties, seed=seed).read()
    figures = {"source": read.source, "clock_s": read.clock_s, **statistics(read)}
    if as_json:
        typer.echo(json.dumps({**figures, "notes": read.notes}))
    else:
        typer.echo("\n".join([*_report(figures), *_notes(read)]))


@workload_app.command()
def generate(
    out: Annotated[Path, typer.Option(help="Trace to write (.jsonl or .jsonl.gz).")],
    requests: Annotated[int, typer.Option(help="How many.")] = 240,
    rate: Annotated[float, typer.Option(help="Mean arrivals per second.")] = 4.0,
    arrivals: Annotated[Arrivals, typer.Option(help="Arrival process.")] = "poisson",
    cv: Annotated[float, typer.Option(help="CV of gamma arrivals; above 1 is bursty.")] = 1.2,
    prompt_mean: Annotated[float, typer.Option(help="Mean prompt tokens.")] = 128.0,
    prompt_cv: Annotated[float, typer.Option(help="CV of lognormal prompts.")] = 0.8,
    prompt_max: Annotated[int | None, typer.Option(help="Cap of the prompts.")] = None,
    output_mean: Annotated[float, typer.Option(help="Mean output tokens.")] = 24.0,
    output_cv: Annotated[float, typer.Option(help="CV of lognormal outputs.")] = 0.6,
    output_max: Annotated[int | None, typer.Option(help="Cap of the outputs.")] = None,
    fixed: Annotated[bool, typer.Option("--fixed", help="Every length is its mean.")] = False,
    lengths_from: Annotated[Path | None, typer.Option(help="Trace to draw lengths from.")] = None,
    prefix_groups: Annotated[int, typer.Option(help="Shared prefixes; 0 for none.")] = 0,
    prefix_tokens: Annotated[int, typer.Option(help="Tokens of each prefix.")] = 64,
    prefix_zipf: Annotated[float, typer.Option(help="Popularity exponent; 0 is even.")] = 1.0,
    block_tokens: Annotated[int, typer.Option(help="Tokens per prefix id.")] = 16,
    seed: options.Seed = 0,
) -> None:
    """Write a seeded synthetic trace."""
    from workloads.generate import WorkloadSpec
    from workloads.generate import generate as generated

    spec = WorkloadSpec(
        requests,
        _arrivals(arrivals, rate, cv),
        _empirical(lengths_from, fixed)
        if lengths_from
        else _independent(
            _tokens(prompt_mean, prompt_cv, prompt_max, fixed),
            _tokens(output_mean, output_cv, output_max, fixed),
        ),
        _prefixes(prefix_groups, prefix_tokens, prefix_zipf, block_tokens),
    )
    _write(generated(spec, seed), out)


@workload_app.command()
def convert(
    trace: TraceArgument,
    out: Annotated[Path, typer.Argument(help="Trace to write (.jsonl or .jsonl.gz).")],
    rate_scale: options.RateScale = None,
    rate: options.Rate = None,
    prompt_scale: options.PromptScale = 1.0,
    output_scale: options.OutputScale = 1.0,
    start: options.Start = None,
    end: options.End = None,
    limit: options.Limit = None,
    spread_ties: options.SpreadTies = False,
    max_bad_rows: options.MaxBadRows = 0,
    seed: options.Seed = 0,
) -> None:
    """Write TRACE, or a part of it, scaled as asked, in our own format."""
    read = TraceOptions(
        trace, max_bad_rows, spread_ties, start, end, limit, prompt_scale, output_scale,
        rate_scale, rate, seed,
    ).read()  # fmt: skip
    _write(read, out)


def _arrivals(process: Arrivals, rate_per_s: float, cv: float) -> "ArrivalProcess":
    from workloads.arrivals import ConstantArrivals, GammaArrivals, PoissonArrivals

    if process == "gamma":
        return GammaArrivals(rate_per_s, cv)
    return PoissonArrivals(rate_per_s) if process == "poisson" else ConstantArrivals(rate_per_s)


def _tokens(mean: float, cv: float, max_tokens: int | None, fixed: bool) -> "TokenLaw":
    from workloads.lengths import FixedTokens, LognormalTokens

    if fixed:
        return FixedTokens(round(mean))
    return LognormalTokens.from_mean(mean, cv, max_tokens=max_tokens)


def _independent(prompt: "TokenLaw", output: "TokenLaw") -> "LengthLaw":
    from workloads.lengths import IndependentLengths

    return IndependentLengths(prompt, output)


def _empirical(path: Path, fixed: bool) -> "LengthLaw":
    from workloads.errors import TraceError
    from workloads.lengths import EmpiricalLengths
    from workloads.reading import read_trace

    if fixed:
        raise TraceError("--fixed and --lengths-from exclude each other; give one")
    return EmpiricalLengths.of(read_trace(path))


def _prefixes(groups: int, tokens: int, zipf: float, block_tokens: int) -> "PrefixGroups | None":
    from workloads.prefixes import PrefixGroups

    return PrefixGroups(groups, tokens, zipf, block_tokens) if groups else None


def _write(trace: "Trace", out: Path) -> None:
    from workloads.native import write_trace

    write_trace(trace, out)
    summary = f"{out}: {len(trace):,} requests, {trace.span_s:,.1f} s, {trace.rate_per_s:.3f} /s"
    typer.echo("\n".join([summary, *_notes(trace)]))


def _report(figures: Mapping[str, Any]) -> list[str]:
    lines = [
        f"source          {figures['source']}",
        f"requests        {figures['rows']:,} in {figures['span_s']:,.1f} s,"
        f" {figures['rate_per_s']:.3f} /s",
        f"gaps            CV {_number(figures['cv_iat'])}, local CV {_number(figures['local_cv'])},"
        f" ties {_share(figures['ties'])}",
        f"dispersion      {_number(figures['idc_10s'])} over 10 s,"
        f" {_number(figures['idc_60s'])} over 60 s (1 = Poisson)",
        f"{'tokens':<14}" + "".join(f"{name:>12}" for name in _FIGURES),
        *(
            f"  {name:<12}" + "".join(f"{figures[f'{name}_tokens'][f]:>12,.1f}" for f in _FIGURES)
            for name in ("prompt", "output")
        ),
        f"rank correlation of prompts and outputs {_number(figures['spearman_rho'])}",
    ]
    return lines + (_prefix_report(figures["prefix"]) if figures["prefix"] else [])


def _prefix_report(prefix: Mapping[str, Any]) -> list[str]:
    return [
        f"prefix blocks   {prefix['blocks']:,}, {prefix['unique_blocks']:,} unique",
        f"ideal hits      {_share(prefix['hit_per_block'])} of blocks,"
        f" {_share(prefix['hit_per_token'])} of tokens"
        f" ({_share(prefix['full_block_hit_per_token'])} in full blocks)",
    ]


def _notes(trace: "Trace") -> list[str]:
    return [
        line
        for note in trace.notes
        for line in wrap(f"note: {note}", WIDTH, subsequent_indent="      ")
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
