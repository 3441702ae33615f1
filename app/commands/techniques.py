"""``servetwin techniques``: what each technique does to a server, and the tables behind it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from app.scenario.common_options import Json, Seed
from app.text.progress import progress

techniques_app = typer.Typer()

Model = Annotated[
    str | None, Option(help="A shipped model, or a path: our JSON, or any config.json.")
]
Device = Annotated[str | None, Option(help="A shipped device, or the path of one.")]
WeightFormat = Annotated[
    str, Option("--format", help="Number format of the weights: bf16, fp8, int4 ...")
]
KVFormat = Annotated[str, Option(help="Number format of keys and values: bf16, fp8 ...")]


@techniques_app.callback(invoke_without_command=True)
def techniques(
    context: typer.Context,
    scenario: Annotated[
        Path | None, Option(help="YAML: model, hardware, techniques, policies, workload.")
    ] = None,
    only: Annotated[
        list[str] | None,
        Option(metavar="NAME:KEY=VALUE,...", help="This technique; may be repeated."),
    ] = None,
    replications: Annotated[
        int, Option(help="Draws of load and engine behind the intervals.", min=2)
    ] = 5,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """What each technique changes: the same load simulated with and without it.

    Without a scenario: Llama-2-7B on an A100 80 GB. TTFT and TPS of a request alone and under load,
    throughput when saturated, memory; signs beyond a dead band of 1 %, 95 % intervals.
    """
    if context.invoked_subcommand is not None:
        return
    from app.scenario.technique_scenario import read_technique_scenario
    from app.text.technique_effects import effect_lines, effects_as_dict, measure_effects
    from sim.techniques.registry import TECHNIQUES, find_technique

    tried = read_technique_scenario(scenario)
    chosen = [find_technique(text) for text in only or TECHNIQUES]
    with progress("simulating techniques", total=len(chosen)) as advance:
        effects = []
        for effect in measure_effects(chosen, tried, replications, seed):
            effects.append(effect)
            advance(len(effects))
    if as_json:
        typer.echo(json.dumps(effects_as_dict(effects, tried)))
    else:
        typer.echo("\n".join(effect_lines(effects, tried)))


@techniques_app.command("list")
def list_techniques(as_json: Json = False) -> None:
    """Every technique by family: its parameters, its formula, its source."""
    from app.text.technique_effects import catalogue, catalogue_lines

    _echo(catalogue(), as_json, catalogue_lines)


@techniques_app.command()
def intensity(
    model: Model = None,
    rows: Annotated[
        str, Option(metavar="N,...", help="Tokens computed at once, n.")
    ] = "1,2,4,8,128,512,4096",
    context: Annotated[
        str | None, Option(metavar="N,...", help="Keys attended to, l; a token's position.")
    ] = None,
    ffn_matrices: Annotated[
        int | None, Option(help="Count so many matrices an FFN: 2 plain, 3 gated.")
    ] = None,
    element_bytes: Annotated[
        float | None, Option(help="FLOP/byte at so many bytes, rather than FLOP/element.")
    ] = None,
    hardware: Device = None,
    as_json: Json = False,
) -> None:
    """FLOPs per element of every kind of product; FLOPs and elements per token.

    Attention is counted twice: its n x l scores through memory, and on the chip (FlashAttention).
    With no options: Llama-2-7B, with 2 matrices an FFN as often published, and with its own 3.
    """
    from app.text.technique_reports import intensity_report
    from app.text.technique_tables import intensity_lines

    report = intensity_report(model, rows, context, ffn_matrices, element_bytes, hardware)
    _echo(report, as_json, intensity_lines)


@techniques_app.command()
def memory(
    model: Annotated[
        list[str] | None, Option(help="Only this model or path; may be repeated.")
    ] = None,
    context: Annotated[int, Option(help="Tokens of a sequence.")] = 4096,
    form: WeightFormat = "bf16",
    kv_format: KVFormat = "bf16",
    hardware: Device = None,
    as_json: Json = False,
) -> None:
    """Weights, KV per token and a whole sequence in memory, for every model of the catalogue."""
    from app.text.technique_reports import memory_report
    from app.text.technique_tables import memory_lines

    report = memory_report(model or [], context, form, kv_format, hardware)
    _echo(report, as_json, memory_lines)


@techniques_app.command()
def latency(
    model: Model = None,
    hardware: Annotated[str, Option(help="A shipped device, or the path of one.")] = "h100",
    batch: Annotated[str, Option(metavar="N,...", help="Sequences in a step.")] = "1,64,256",
    kv_heads: Annotated[
        str | None, Option(metavar="N,...", help="KV heads to compare; else its own.")
    ] = None,
    context: Annotated[int, Option(help="Tokens of every sequence.")] = 1024,
    form: WeightFormat = "bf16",
    kv_format: KVFormat = "bf16",
    tokens_per_day: Annotated[
        float | None, Option(help="How many devices make so many tokens a day?")
    ] = None,
    as_json: Json = False,
) -> None:
    """A decode step as memory over bandwidth, and its throughput, for every batch.

    With no options: Llama-2-13B on an H100, with 40 and with 8 KV heads.
    """
    from app.text.technique_reports import latency_report
    from app.text.technique_tables import latency_lines

    report = latency_report(
        model, hardware, batch, kv_heads, context, form, kv_format, tokens_per_day
    )
    _echo(report, as_json, latency_lines)


def _echo(
    report: dict[str, Any], as_json: bool, lines: Callable[[dict[str, Any]], list[str]]
) -> None:
    typer.echo(json.dumps(report) if as_json else "\n".join(lines(report)))
