"""Fuzz texts of options, such as SLOs and ``KEY=VALUE``: ``python -m tests.fuzz.option_texts``.

A text is read as the command line has it, and what is read is what the next step wants of it.
"""

import sys
from collections.abc import Callable, Mapping
from math import isfinite

from servetwin.app.scenario.options.distributions import (
    ArrivalChoice,
    independent_lengths,
    lanes_of,
    think_time_of,
)
from servetwin.app.scenario.options.policy import parse_kv_tokens
from servetwin.app.scenario.prices import parse_prices
from servetwin.app.scenario.settings import parse_policies, parse_settings
from servetwin.app.scenario.sweep_axes import parse_axis, parse_rates
from servetwin.app.tasks.calibrate import parse_point
from servetwin.app.verdict.gate import parse_limits
from servetwin.loadtest.body.extra_body import parse_extra_body, parse_sampling
from servetwin.loadtest.body.images import parse_images
from servetwin.loadtest.mock.plan import parse_fault
from servetwin.loadtest.options import parse_cancellation, parse_give_up
from servetwin.loadtest.report.limits import parse_conditions, parse_slo
from servetwin.loadtest.sweep.run_sweep import parse_budget
from servetwin.policies.kv.kv_groups import parse_groups
from servetwin.policies.queues.quotas import parse_quotas
from servetwin.sim.core.autoscaling import parse_rule
from servetwin.sim.core.faults import parse_faults
from servetwin.sim.step_times.tables.server_overheads import parse_overheads
from servetwin.sim.techniques.quality import parse_own_qualities
from servetwin.sim.techniques.registry import find_technique, parse_efficiency
from servetwin.workloads.fields import parse_header_columns
from servetwin.workloads.generators.lora_mix import parse_lora_mix
from servetwin.workloads.tables.mapping import parse_mapping
from tests.fuzz.campaign import command_line
from tests.fuzz.readings import Kind, check_of, draw_of


def _slo(text: str) -> None:
    slo = parse_slo(text)
    for limit in (slo.ttft_s, slo.tpot_s, slo.e2e_s):
        assert limit is None or (isfinite(limit) and limit > 0)


def _conditions(text: str) -> None:
    for condition in parse_conditions([text], slo=True):
        assert isfinite(condition.limit)


def _own_quality(text: str) -> None:
    tried = [find_technique(name) for name in ("awq", "fp8")]
    for quality in parse_own_qualities([text], tried).values():
        assert isfinite(quality.change)
        assert quality.source


TEXTS: Mapping[str, tuple[Callable[[str], object], tuple[str, ...]]] = {
    "slo": (_slo, ("ttft=500ms,tpot=50ms,e2e=2s", "e2e=.5s")),
    "conditions": (_conditions, ("failed>1%", "ttft_p99>500ms,goodput<20", "throughput<9tokens/s")),
    "limits": (parse_limits, ("ttft=10%,tpot=5%",)),
    "budget": (parse_budget, ("40", "10min", "90s")),
    "cancellation": (parse_cancellation, ("share=0.1,after=5tokens", "share=.5,after=200ms")),
    "give_up": (parse_give_up, ("10s", "500ms", "never")),
    "images": (parse_images, ("512x512,2", "https://a.example/b.png,3")),
    "extra_body": (parse_extra_body, ('{"top_k": 3}', '{"a": {"b": [1]}}')),
    "sampling": (parse_sampling, ("temperature=0.7,top_p=0.9",)),
    "lora_mix": (lambda text: parse_lora_mix(text, 0), ("a=0.5,b=0.25", "a=1")),
    "fault": (parse_fault, ("cut:every=2,after=8", "freeze:at_s=.5,for_s=1e-1", "status:code=429")),
    "faults": (
        parse_faults,
        ("crash:replica=1,at_s=9,for_s=.5", "slow:replica=0,at_s=1", "partition:replica=0,at_s=1"),
    ),
    "quotas": (parse_quotas, ("acme=2000/60000,*=500/1e4",)),
    "groups": (lambda text: parse_groups(text, 16, False), ("full,5xwindow:1024", "full,state")),
    "rule": (parse_rule, ("queue:target=4,min=1,max=16", "schedule:steps=4/16@28800,max=20")),
    "mapping": (parse_mapping, ("arrival_s=ts,prompt_tokens=in,output_tokens=out",)),
    "header_columns": (parse_header_columns, ("tenant=X-Tenant,user=X-User",)),
    "point": (parse_point, ("ttft=0.21,tpot=0.019,users=2,prompt=64,output=8",)),
    "overheads": (lambda text: parse_overheads(text, None), ("step_s=0.001,chunk_s=1e-5",)),
    "efficiency": (parse_efficiency, ("compute=0.5,memory=0.8",)),
    "own_qualities": (_own_quality, ("awq=perplexity:+2%@AWQ table 4", "fp8=accuracy:-.5%@own")),
    "settings": (lambda text: parse_settings([text], "--set"), ("max_seqs=8", "queue_order=sjf")),
    "policies": (parse_policies, ("chunked+paged+prefix", "vllm-v1+max_seqs=8", "replicas=2")),
    "kv_tokens": (parse_kv_tokens, ("4096", "unlimited")),
    "axis": (parse_axis, ("max_seqs=4,8,16", "replicas=1,2")),
    "rates": (parse_rates, ("2,4,8", "0.5")),
    "arrivals": (
        lambda text: ArrivalChoice(text).process(),
        ("gamma:cv=2", "poisson", "mmpp2:on=3,off=4", "weibull:cv=1.5"),
    ),
    "lengths": (
        lambda text: independent_lengths(text, None),
        ("lognormal:mean=512,cv=0.8", "pareto:alpha=1.1,max=99", "7"),
    ),
    "lanes": (
        lambda text: lanes_of(text, 0), ("8", "8:agentx", "4:idle=10,from=0,to=.5,duration=900")
    ),
    "prices": (
        lambda text: parse_prices(text, "--price"), ("2.5", "h100=2.5,l40s=0.9", "a=1 2")
    ),
    "think_time": (think_time_of, ("lognormal:median=3,sigma=1", "exponential:mean=2", "1.5")),
}  # fmt: skip
"""What reads a text, and texts that are right."""


def _decoded(read: Callable[[str], object]) -> Callable[[bytes], object]:
    """Return what reads the bytes of a command line, as Python decodes them."""
    return lambda data: read(data.decode(errors="surrogateescape"))


KINDS = {
    name: Kind([text.encode() for text in texts], _decoded(read))
    for name, (read, texts) in TEXTS.items()
}

draw, check = draw_of(KINDS), check_of(KINDS)


if __name__ == "__main__":
    sys.exit(command_line("option_texts", draw, check))
