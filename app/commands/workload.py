"""``servetwin workload``: look at, make and convert request traces."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from servetwin.app.command import Command
from servetwin.app.reports.workload import check_lines, statistics_lines
from servetwin.app.scenario.options.common import Json, Seed, TracePath
from servetwin.app.scenario.options.distributions import ArrivalChoice, PrefixChoice, arrivals_of
from servetwin.app.scenario.options.groups import Only, takes_options
from servetwin.app.scenario.options.trace import TraceOptions
from servetwin.app.scenario.options.workload import (
    LengthOptions,
    ServeGenOptions,
    SessionOptions,
    UserOptions,
)
from servetwin.workloads.errors import TraceError

if TYPE_CHECKING:
    from servetwin.workloads.trace import Trace

READ = ("spread_ties", "max_bad_rows", "reader", "columns")
CONVERTED = (
    "rate_scale", "rate_per_s", "prompt_scale", "output_scale", "start_s", "end_s", "limit",
    "tokenizer", *READ,
)  # fmt: skip


class GeneratorCommand(Command):
    """Takes the options of ``--named NAME`` as defaults: what is given on the line wins."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments over the options of the named workload, if there is one."""
        if name := _value_of("--named", args):
            from servetwin.workloads.generators.named import find_named

            settings = find_named(name).options
            ctx.default_map = {
                each.name: settings[option]
                for each in self.params
                for option in (option.removeprefix("--") for option in each.opts)
                if option in settings
            }
        return super().parse_args(ctx, args)


@takes_options()
def stats(
    trace: TracePath,
    read: Annotated[TraceOptions, Only(*READ)],
    against: Annotated[Path | None, Option(help="Reference trace to compare with.")] = None,
    resampled: Annotated[
        bool, Option("--resampled", help="TRACE draws its lengths from the reference.")
    ] = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Print arrivals, lengths, prefix hits and sessions of TRACE; --against judges it (exit 1)."""
    from servetwin.app.reports.tables import note_lines
    from servetwin.workloads.statistics.statistics import statistics

    requests = replace(read, path=trace, seed=seed).read()
    if against is not None:
        reference = replace(read, path=against, seed=seed, columns=None).read()
        _judge(requests, reference, resampled, as_json)
        return
    figures = {"source": requests.source, "clock_s": requests.clock_s, **statistics(requests)}
    if as_json:
        typer.echo(json.dumps({**figures, "notes": requests.notes}))
    else:
        typer.echo("\n".join([*statistics_lines(figures), *note_lines(requests.notes)]))


def _judge(trace: "Trace", reference: "Trace", resampled: bool, as_json: bool) -> None:
    """Print every check; exit code 1 where one fails."""
    from servetwin.workloads.statistics.comparison import compare

    checks = compare(trace, reference, resampled)
    passes = all(check.passes is not False for check in checks)
    if as_json:
        typer.echo(json.dumps({"checks": [check.as_dict() for check in checks], "passes": passes}))
    else:
        typer.echo("\n".join(check_lines(checks)))
    if not passes:
        raise typer.Exit(1)


def named(as_json: Json = False) -> None:
    """List the named workloads of ``generate --named``: what they are, sources, options."""
    from servetwin.app.reports.workload import named_lines
    from servetwin.workloads.generators.named import NAMED

    if as_json:
        typer.echo(json.dumps({name: asdict(workload) for name, workload in NAMED.items()}))
    else:
        typer.echo("\n".join(named_lines(NAMED)))


@takes_options(
    "--out", "--named", "--requests", "--arrivals", "--rate", "--prompt-mean", "--output-mean",
    "--prefix-groups", cls=GeneratorCommand,
)  # fmt: skip
def generate(
    out: Annotated[Path, Option(help="Trace to write (.jsonl or .jsonl.gz).")],
    arrivals: ArrivalChoice,
    lengths: LengthOptions,
    prefix: PrefixChoice,
    sessions: SessionOptions,
    users: UserOptions,
    servegen: ServeGenOptions,
    named: Annotated[
        str | None, Option(metavar="NAME", help="Options of a named workload; others win over it.")
    ] = None,
    requests: Annotated[int, Option(help="How many independent requests.")] = 240,
    samples: Annotated[int, Option(help="Answers wanted to each prompt.", min=1)] = 1,
    seed: Seed = 0,
) -> None:
    """Write a seeded synthetic trace."""
    from servetwin.workloads.generators.generate import WorkloadSpec
    from servetwin.workloads.generators.generate import generate as generated

    _check_one_source(prefix.name, users.closed_loop, servegen.servegen)
    if servegen.servegen is not None:
        _write(servegen.generate(servegen.servegen, seed), out)
        return
    prompt, output = lengths.choice("prompt"), lengths.choice("output")
    arrivals = arrivals_of(arrivals.name, arrivals)
    if prefix.name in CONVERSATIONS:
        trace = sessions.generate(prefix, arrivals, output, seed)
    elif users.closed_loop:
        trace = users.generate(prefix, lengths.joint(prompt, output), seed)
    else:
        both = lengths.joint(prompt, output)
        spec = WorkloadSpec(requests, arrivals.process(), both, prefix.prefixes())
        trace = generated(spec, seed)
    if samples > 1:
        wanted = tuple(replace(request, samples=samples) for request in trace)
        trace = replace(trace, requests=wanted)
    if named is not None:
        from servetwin.workloads.generators.named import find_named

        trace = replace(trace, notes=(*trace.notes, f"{named}: {find_named(named).source}"))
    _write(trace, out)


@takes_options()
def convert(
    trace: TracePath,
    out: Annotated[Path, Argument(help="Trace to write (.jsonl or .jsonl.gz).")],
    part: Annotated[TraceOptions, Only(*CONVERTED)],
    seed: Seed = 0,
) -> None:
    """Write TRACE, or a part of it, scaled, in our own format."""
    _write(replace(part, path=trace, seed=seed).read(), out)


CONVERSATIONS = ("multi-turn", "agentic")


def _check_one_source(structure: str, closed_loop: int, servegen: Path | None) -> None:
    sources = {
        f"--structure {structure}": structure in CONVERSATIONS,
        "--closed-loop": bool(closed_loop),
        "--servegen": servegen is not None,
    }
    chosen = [option for option, is_chosen in sources.items() if is_chosen]
    if len(chosen) > 1:
        raise TraceError(f"{' and '.join(chosen)} exclude each other; give one")


def _value_of(option: str, args: Sequence[str]) -> str:
    """Return the value of an option, the last where it is repeated; empty without it."""
    value = ""
    for argument, following in zip(args, [*args[1:], ""], strict=True):
        if argument == option:
            value = following
        elif argument.startswith(f"{option}="):
            value = argument.removeprefix(f"{option}=")
    return value


def _write(trace: "Trace", out: Path) -> None:
    from servetwin.app.reports.tables import note_lines
    from servetwin.workloads.readers.native import write_trace

    write_trace(trace, out)
    summary = f"{out}: {len(trace):,} requests, {trace.span_s:,.1f} s, {trace.rate_per_s:.3f} /s"
    typer.echo("\n".join([summary, *note_lines(trace.notes)]))
