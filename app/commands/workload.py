"""``servetwin workload``: look at, make and convert request traces."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from servetwin.app.command import Command, print_result
from servetwin.app.reports.workload import check_lines, statistics_lines
from servetwin.app.scenario.options.common import Json, Seed, TracePath
from servetwin.app.scenario.options.groups import takes_options
from servetwin.app.scenario.options.trace import TraceOptions
from servetwin.app.scenario.options.workload import GenerateOptions
from servetwin.workloads.errors import TraceError
from servetwin.workloads.trace import Trace

Written = Annotated[Path, Argument(help="Trace to write (.jsonl or .jsonl.gz).")]
READ = ("spread_ties", "max_bad_rows", "reader", "columns")
CONVERTED = (
    "rate_scale", "rate_per_s", "prompt_scale", "output_scale", "start_s", "end_s", "limit",
    "reasoning_budget", "compact", "summary_tokens", "tokenizer", *READ,
)  # fmt: skip


class GeneratorCommand(Command):
    """Takes the options of ``--named NAME`` as defaults: what is given on the line wins."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments, again over the options of the named workload if there is one."""
        rest = super().parse_args(ctx, [*args])
        if not (name := ctx.params.get("named")):
            return rest
        from servetwin.workloads.generators.named import find_named

        settings = find_named(name).options
        ctx.default_map = {
            each.name: settings[option]
            for each in self.params
            for option in (option.removeprefix("--") for option in each.opts)
            if option in settings
        }
        ctx.params.clear()
        return super().parse_args(ctx, [*args])


@takes_options()
def stats(
    trace: TracePath,
    read: Annotated[TraceOptions, READ],
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
    if resampled:
        raise TraceError("--resampled: is of --against: give it too")
    figures = {"source": requests.source, "clock_s": requests.clock_s, **statistics(requests)}
    lines = [*statistics_lines(figures), *note_lines(requests.notes)]
    print_result(as_json, {**figures, "notes": requests.notes}, lines)


def _judge(trace: Trace, reference: Trace, resampled: bool, as_json: bool) -> None:
    """Print every check; exit code 1 where one fails."""
    from servetwin.workloads.statistics.comparison import compare

    checks = compare(trace, reference, resampled)
    passes = all(check.passes is not False for check in checks)
    record = {"checks": [check.as_dict() for check in checks], "passes": passes}
    print_result(as_json, record, check_lines(checks))
    if not passes:
        raise typer.Exit(1)


def named(as_json: Json = False) -> None:
    """List the named workloads of ``generate --named``: what they are, sources, options."""
    from servetwin.app.reports.workload import named_lines
    from servetwin.workloads.generators.named import NAMED

    record = {name: asdict(workload) for name, workload in NAMED.items()}
    print_result(as_json, record, named_lines(NAMED))


@takes_options(
    "--out", "--named", "--requests", "--arrivals", "--rate", "--prompt-tokens", "--output-tokens",
    "--prefix-groups", cls=GeneratorCommand,
)  # fmt: skip
def generate(options: GenerateOptions) -> None:
    """Write a seeded synthetic trace."""
    with options.overwriting.claimed_output(options.out, "trace") as out:
        _write(options.generate(), out)


@takes_options(
    "--start", "--end", "--limit", "--rate", "--rate-scale", "--prompt-scale", "--output-scale",
    "--map",
)  # fmt: skip
def convert(
    trace: TracePath,
    out: Written,
    part: Annotated[TraceOptions, CONVERTED],
    seed: Seed = 0,
) -> None:
    """Write TRACE, or a part of it, scaled, in our own format."""
    _write(replace(part, path=trace, seed=seed).read(), out)


@takes_options()
def anonymise(
    trace: TracePath,
    out: Written,
    read: Annotated[TraceOptions, (*READ, "tokenizer")],
) -> None:
    """Write TRACE without texts, names and headers: salted hashes keep which of them are equal."""
    from servetwin.workloads.anonymous import Anonymiser

    _write(Anonymiser().trace(replace(read, path=trace).read()), out)


def _write(trace: Trace, out: Path) -> None:
    from servetwin.app.reports.tables import note_lines
    from servetwin.workloads.readers.native import is_trace, write_trace

    if out.is_file() and not is_trace(out):
        raise TraceError(f"{out}: is there, and is no trace of ours; name another file")
    write_trace(trace, out)
    summary = f"{out}: {len(trace):,} requests, {trace.span_s:,.1f} s, {trace.rate_per_s:.3f} /s"
    typer.echo("\n".join([summary, *note_lines(trace.notes)]))
