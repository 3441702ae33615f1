"""``servetwin workload``: look at, make and convert request traces."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.commands.described import DescribedCommand
from app.scenario.common_options import Json, Seed, TracePath
from app.scenario.distribution_specs import arrivals_of, lengths_of
from app.scenario.option_groups import Only, takes_options
from app.scenario.trace_options import TraceOptions
from app.scenario.workload_distributions import (
    ARRIVALS,
    DEFAULT_ARRIVALS,
    DEFAULT_OUTPUT,
    DEFAULT_PROMPT,
    LENGTHS,
    STRUCTURES,
    THINK_TIMES,
    ArrivalChoice,
    LengthChoice,
    PrefixChoice,
    think_time,
)
from app.text.workload_report import check_lines, note_lines, statistics_lines

if TYPE_CHECKING:
    from workloads.generators.lengths import LengthLaw
    from workloads.trace import Trace

workload_app = typer.Typer(help="Look at, make and convert request traces.", no_args_is_help=True)

CONVERTED = (
    "rate_scale", "rate_per_s", "prompt_scale", "output_scale", "start_s", "end_s", "limit",
    "spread_ties", "max_bad_rows",
)  # fmt: skip


def _option(help: str, panel: str, *names: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel)


@workload_app.command(cls=DescribedCommand)
@takes_options
def stats(
    trace: TracePath,
    read: Annotated[TraceOptions, Only("spread_ties", "max_bad_rows")],
    against: Annotated[Path | None, typer.Option(help="Reference trace to compare with.")] = None,
    resampled: Annotated[
        bool, typer.Option("--resampled", help="TRACE draws its lengths from the reference.")
    ] = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Print arrivals, lengths, prefix hits and sessions of TRACE; --against judges it (exit 1)."""
    from workloads.statistics.statistics import statistics

    requests = replace(read, path=trace, seed=seed).read()
    if against is not None:
        reference = replace(read, path=against, seed=seed).read()
        _judge(requests, reference, resampled, as_json)
        return
    figures = {"source": requests.source, "clock_s": requests.clock_s, **statistics(requests)}
    if as_json:
        typer.echo(json.dumps({**figures, "notes": requests.notes}))
    else:
        typer.echo("\n".join([*statistics_lines(figures), *note_lines(requests.notes)]))


def _judge(trace: "Trace", reference: "Trace", resampled: bool, as_json: bool) -> None:
    """Print every check; exit code 1 where one fails."""
    from workloads.validation import compare

    checks = compare(trace, reference, resampled)
    passes = all(check.passes is not False for check in checks)
    if as_json:
        found = [check.as_dict() for check in checks]
        typer.echo(json.dumps({"checks": found, "passes": passes}))
    else:
        typer.echo("\n".join(check_lines(checks)))
    if not passes:
        raise typer.Exit(1)


@workload_app.command(cls=DescribedCommand)
def generate(
    out: Annotated[Path, typer.Option(help="Trace to write (.jsonl or .jsonl.gz).")],
    requests: Annotated[int, typer.Option(help="How many independent requests.")] = 240,
    seed: Seed = 0,
    rate: Annotated[
        float, _option("Mean arrivals per second (of sessions, if any).", "Arrivals")
    ] = DEFAULT_ARRIVALS.rate_per_s,
    arrivals: Annotated[
        str, _option(f"{', '.join(ARRIVALS)}; with settings: gamma:cv=2.", "Arrivals")
    ] = DEFAULT_ARRIVALS.name,
    cv: Annotated[
        float, _option("CV of gamma or weibull gaps; above 1 is bursty.", "Arrivals")
    ] = DEFAULT_ARRIVALS.cv,
    clients: Annotated[int, _option("How many clients.", "Arrivals")] = DEFAULT_ARRIVALS.clients,
    on_s: Annotated[float, _option("Mean seconds on (mmpp2).", "Arrivals")] = DEFAULT_ARRIVALS.on_s,
    off_s: Annotated[
        float, _option("Mean seconds off (mmpp2).", "Arrivals")
    ] = DEFAULT_ARRIVALS.off_s,
    diurnal: Annotated[bool, _option("The rate follows a day.", "Arrivals", "--diurnal")] = False,
    peak_trough: Annotated[
        float, _option("Peak over trough of a day.", "Arrivals")
    ] = DEFAULT_ARRIVALS.peak_to_trough,
    hourly: Annotated[
        str | None, _option("Rates of the parts of a day: 1,0.5,...", "Arrivals")
    ] = None,
    period: Annotated[
        float, _option("Seconds of a day, or of a ramp.", "Arrivals")
    ] = DEFAULT_ARRIVALS.period_s,
    prompt_law: Annotated[
        str, _option(f"{', '.join(LENGTHS)}; with settings: uniform:mean=99.", "Lengths")
    ] = DEFAULT_PROMPT.name,
    prompt_mean: Annotated[
        float, _option("Mean prompt tokens.", "Lengths")
    ] = DEFAULT_PROMPT.mean_tokens,
    prompt_cv: Annotated[
        float, _option("CV of lognormal, uniform, pareto prompts.", "Lengths")
    ] = DEFAULT_PROMPT.cv,
    prompt_max: Annotated[int | None, _option("Cap of the prompts.", "Lengths")] = None,
    output_law: Annotated[
        str, _option(f"{', '.join(LENGTHS)}; with settings as above.", "Lengths")
    ] = DEFAULT_OUTPUT.name,
    output_mean: Annotated[
        float, _option("Mean output tokens.", "Lengths")
    ] = DEFAULT_OUTPUT.mean_tokens,
    output_cv: Annotated[
        float, _option("CV of lognormal, uniform, pareto outputs.", "Lengths")
    ] = DEFAULT_OUTPUT.cv,
    output_max: Annotated[int | None, _option("Cap of the outputs.", "Lengths")] = None,
    length_zipf: Annotated[float, _option("Exponent of zipf lengths.", "Lengths")] = 1.1,
    tail_alpha: Annotated[
        float, _option("Index of the tail above the 95 % point (pareto).", "Lengths")
    ] = 2.2,
    fixed: Annotated[bool, _option("Every length is its mean.", "Lengths", "--fixed")] = False,
    lengths_from: Annotated[Path | None, _option("Trace to draw lengths from.", "Lengths")] = None,
    jitter: Annotated[
        float, _option("Sigma of a factor on lengths drawn from a trace.", "Lengths")
    ] = 0.0,
    structure: Annotated[str | None, _option(", ".join(STRUCTURES), "Structure")] = None,
    prefix_groups: Annotated[int, _option("Shared prefixes; 0 for none.", "Structure")] = 0,
    prefix_tokens: Annotated[int, _option("Tokens of each prefix.", "Structure")] = 64,
    prefix_zipf: Annotated[float, _option("Popularity exponent; 0 is even.", "Structure")] = 1.0,
    branching: Annotated[int, _option("Children of a tree's node.", "Structure")] = 8,
    levels: Annotated[int, _option("Levels of a tree.", "Structure")] = 4,
    node_tokens: Annotated[int, _option("Tokens of a tree's node.", "Structure")] = 256,
    descend: Annotated[float, _option("Chance to take one more node.", "Structure")] = 0.8,
    block_tokens: Annotated[
        int | None, _option("Tokens per prefix id; else 16, agentic 64.", "Structure")
    ] = None,
    sessions: Annotated[
        int, _option("How many conversations (multi-turn, agentic).", "Structure")
    ] = 20,
    context_limit: Annotated[
        int | None, _option("Compact a conversation beyond so many tokens.", "Structure")
    ] = None,
    closed_loop: Annotated[
        int, _option("So many users who wait for each answer.", "Closed loop")
    ] = 0,
    each: Annotated[int, _option("Requests of each user.", "Closed loop")] = 10,
    think: Annotated[str, _option(" or ".join(THINK_TIMES), "Closed loop")] = "lognormal",
    think_time_s: Annotated[
        float, _option("Median (lognormal) or mean think time.", "Closed loop", "--think-time")
    ] = 120.0,
    servegen: Annotated[
        Path | None, _option("Folder of ServeGen clients.", "ServeGen", "--servegen")
    ] = None,
    client: Annotated[
        list[str] | None, _option("Only this client; repeatable.", "ServeGen", "--client")
    ] = None,
    start: Annotated[float, _option("Start in the clients' windows, s.", "ServeGen")] = 0.0,
    span: Annotated[float, _option("Seconds to generate.", "ServeGen")] = 600.0,
    rate_scale: Annotated[float, _option("Times the clients' rates.", "ServeGen")] = 1.0,
) -> None:
    """Write a seeded synthetic trace."""
    prefix = PrefixChoice(
        structure, prefix_groups, prefix_tokens, prefix_zipf, branching, levels, node_tokens,
        descend, block_tokens or 16,
    )  # fmt: skip
    _check_one_source(prefix.name, closed_loop, servegen)
    if servegen is not None:
        _write(_servegen(servegen, client or [], seed, start, span, rate_scale), out)
        return
    laws = ["fixed"] * 2 if fixed else [prompt_law, output_law]
    prompt = LengthChoice(
        "prompt", "fixed", prompt_mean, prompt_cv, prompt_max, length_zipf, tail_alpha
    )
    prompt = lengths_of(laws[0], prompt, "--prompt-law")
    output = LengthChoice(
        "output", "fixed", output_mean, output_cv, output_max, length_zipf, tail_alpha
    )
    output = lengths_of(laws[1], output, "--output-law")
    choice = ArrivalChoice(
        "poisson", rate, cv, clients, on_s, off_s, diurnal, peak_trough, hourly, period
    )
    choice = arrivals_of(arrivals, choice)
    if prefix.name in CONVERSATIONS:
        trace = _conversations(
            prefix.name, choice, output, sessions, context_limit, block_tokens, seed
        )
    elif closed_loop:
        lengths = _lengths(prompt, output, lengths_from, jitter, fixed)
        trace = _closed_loop(closed_loop, each, lengths, think, think_time_s, prefix, seed)
    else:
        lengths = _lengths(prompt, output, lengths_from, jitter, fixed)
        trace = _independent(requests, choice, lengths, prefix, seed)
    _write(trace, out)


@workload_app.command(cls=DescribedCommand)
@takes_options
def convert(
    trace: TracePath,
    out: Annotated[Path, typer.Argument(help="Trace to write (.jsonl or .jsonl.gz).")],
    part: Annotated[TraceOptions, Only(*CONVERTED)],
    seed: Seed = 0,
) -> None:
    """Write TRACE, or a part of it, scaled, in our own format."""
    _write(replace(part, path=trace, seed=seed).read(), out)


CONVERSATIONS = ("multi-turn", "agentic")


def _check_one_source(structure: str, closed_loop: int, servegen: Path | None) -> None:
    from workloads.errors import TraceError

    asked = {
        f"--structure {structure}": structure in CONVERSATIONS,
        "--closed-loop": bool(closed_loop),
        "--servegen": servegen is not None,
    }
    given = [option for option, is_given in asked.items() if is_given]
    if len(given) > 1:
        raise TraceError(f"{' and '.join(given)} exclude each other; give one")


def _independent(
    requests: int, choice: ArrivalChoice, lengths: "LengthLaw", prefix: PrefixChoice, seed: int
) -> "Trace":
    from workloads.generators.generate import WorkloadSpec
    from workloads.generators.generate import generate as generated

    return generated(WorkloadSpec(requests, choice.process(), lengths, prefix.prefixes()), seed)


def _conversations(
    name: str,
    choice: ArrivalChoice,
    output: LengthChoice,
    sessions: int,
    limit_tokens: int | None,
    block_tokens: int | None,
    seed: int,
) -> "Trace":
    from dataclasses import replace

    from workloads.generators.conversations import agentic, generate_conversations, multi_turn

    spec = (
        agentic(sessions, choice.process())
        if name == "agentic"
        else multi_turn(sessions, choice.process(), output.law())
    )
    spec = replace(
        spec,
        limit_tokens=limit_tokens or spec.limit_tokens,
        block_tokens=block_tokens or spec.block_tokens,
    )
    return generate_conversations(spec, seed)


def _closed_loop(
    users: int,
    each: int,
    lengths: "LengthLaw",
    think: str,
    think_s: float,
    prefix: PrefixChoice,
    seed: int,
) -> "Trace":
    from workloads.generators.closed_loop import ClosedLoopSpec, generate_closed_loop

    spec = ClosedLoopSpec(users, each, lengths, think_time(think, think_s), prefix.prefixes())
    return generate_closed_loop(spec, seed)


def _servegen(
    folder: Path, names: list[str], seed: int, start_s: float, span_s: float, rate_scale: float
) -> "Trace":
    from workloads.generators.servegen import generate_servegen
    from workloads.generators.servegen_files import read_clients

    return generate_servegen(read_clients(folder, names), seed, start_s, span_s, rate_scale)


def _lengths(
    prompt: LengthChoice, output: LengthChoice, path: Path | None, jitter: float, fixed: bool
) -> "LengthLaw":
    from workloads.errors import TraceError
    from workloads.generators.lengths import EmpiricalLengths, IndependentLengths
    from workloads.reading import read_trace

    if path is None:
        return IndependentLengths(prompt.law(), output.law())
    if fixed:
        raise TraceError("--fixed and --lengths-from exclude each other; give one")
    return EmpiricalLengths.of(read_trace(path), jitter)


def _write(trace: "Trace", out: Path) -> None:
    from workloads.native import write_trace

    write_trace(trace, out)
    summary = f"{out}: {len(trace):,} requests, {trace.span_s:,.1f} s, {trace.rate_per_s:.3f} /s"
    typer.echo("\n".join([summary, *note_lines(trace.notes)]))
