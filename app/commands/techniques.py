"""``servetwin techniques``: what each technique does to a server, and the tables behind it."""

from servetwin.app.command import print_result
from servetwin.app.reports.progress import progress
from servetwin.app.scenario.options.common import Json, Seed
from servetwin.app.scenario.options.groups import takes_options
from servetwin.app.scenario.options.techniques import (
    EffectOptions,
    IntensityOptions,
    LatencyOptions,
    MemoryOptions,
    Model,
)
from servetwin.workloads.errors import PolicyError


@takes_options()
def techniques(options: EffectOptions, seed: Seed = 0, as_json: Json = False) -> None:
    """Simulate the same load with and without each technique, and print what it changes.

    Without a scenario: Llama-2-7B on an A100 80 GB. TTFT and TPS of a request alone and under load,
    throughput when saturated, memory; signs beyond a dead band of 1 %, 95 % intervals. Quality is 0
    where the answers stay the same, else published or your own, and never computed.
    """
    from servetwin.app.reports.techniques.effects import (
        effect_lines,
        effects_as_dict,
        judge,
        measure_effects,
        refusal,
    )
    from servetwin.app.scenario.files.technique_scenario import read_technique_scenario
    from servetwin.sim.techniques.quality import parse_own_qualities
    from servetwin.sim.techniques.registry import TECHNIQUES, find_technique

    tried = read_technique_scenario(options.scenario)
    chosen = [find_technique(text) for text in options.only or TECHNIQUES]
    qualities = parse_own_qualities(options.quality, chosen)
    with progress("simulating techniques", total=len(chosen)) as advance:
        effects = []
        for effect in measure_effects(chosen, tried, options.replications, seed):
            effects.append(effect)
            advance(len(effects))
    if all(effect.refused for effect in effects):
        raise PolicyError(f"no technique to compare: {'; '.join(map(refusal, effects))}")
    verdicts = judge(effects, tried, qualities)
    print_result(as_json, effects_as_dict(verdicts, tried), effect_lines(verdicts, tried))


def list_techniques(as_json: Json = False) -> None:
    """Every technique by family: its parameters, its formula, its source."""
    from servetwin.app.reports.techniques.effects import catalogue, catalogue_lines

    report = catalogue()
    print_result(as_json, report, catalogue_lines(report))


@takes_options()
def intensity(options: IntensityOptions, as_json: Json = False) -> None:
    """FLOPs per element of every kind of product; FLOPs and elements per token.

    Attention is counted twice: its n x l scores through memory, and on the chip (FlashAttention).
    With no options: Llama-2-7B, with 2 matrices an FFN as often published, and with its own 3.
    """
    from servetwin.app.reports.techniques.arithmetic import intensity_lines, intensity_report

    report = intensity_report(options)
    print_result(as_json, report, intensity_lines(report))


@takes_options()
def formats(model: Model = None, as_json: Json = False) -> None:
    """List every number format: bits of a weight, size, noise of rounding, quality where published.

    Without a model: Llama-2-7B.
    """
    from servetwin.app.reports.techniques.quality import formats_lines, formats_report

    report = formats_report(model)
    print_result(as_json, report, formats_lines(report))


@takes_options()
def memory(options: MemoryOptions, as_json: Json = False) -> None:
    """Weights, KV per token and a whole sequence in memory, for every model of the catalogue."""
    from servetwin.app.reports.techniques.arithmetic import memory_lines, memory_report

    report = memory_report(options)
    print_result(as_json, report, memory_lines(report))


@takes_options()
def latency(options: LatencyOptions, as_json: Json = False) -> None:
    """A decode step as memory over bandwidth, and its throughput, for every batch.

    With no options: Llama-2-13B on an H100, with 40 and with 8 KV heads.
    """
    from servetwin.app.reports.techniques.arithmetic import latency_lines, latency_report

    report = latency_report(options)
    print_result(as_json, report, latency_lines(report))
