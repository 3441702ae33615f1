"""Figures of the talk on deployment (items 1.5): GPT-3 175B on eight A100, 1000 in, 250 out."""

from collections.abc import Iterator
from dataclasses import replace
from math import inf

from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.catalogue.hardware import Link
from servetwin.sim.step_times.roofline.decode_latency import ideal_deployment
from servetwin.sim.step_times.roofline.formats import BF16, FORMATS, Format
from servetwin.sim.step_times.roofline.parallel import Parallel
from tests.support.formulas.phases import (
    Phases,
    activation_bytes,
    batch_where_kv_outweighs_weights,
    decode_traffic_ratio,
)
from tests.support.formulas.techniques import ideal_request_s
from tests.support.published.claim import Claim

_NAMED_PARAMS = 175e9
"""Weights as the model's name has them."""


def phases() -> Iterator[Claim]:
    """Yield both phases of a request: weights, passes, FLOPs, ideal times."""
    model, a100 = find_model("gpt-3-175b"), find_hardware("a100-80gb")
    one, weight_bytes = Phases(model, 1, 1000, 250), 2 * _NAMED_PARAMS
    weights = model.linear_params() + model.head_params()
    yield Claim("weights of the layers", "173946175488", model.linear_params())
    yield Claim("weights with one embedding", "174563733504", weights)
    yield Claim("weights in fp16, GB", "350", 2 * weights / 1e9, _NAME)
    yield Claim("generation passes", "249", one.generation_passes)
    short = Phases(model, 1, 4, 4)
    yield Claim("4 tokens in, 4 out: passes", "4", 1 + short.generation_passes)
    yield Claim("4 tokens in, 4 out: KV entries at the end", "7", short.kv_entries)
    yield Claim(
        "an activation tensor of the context, bytes", "24576000", activation_bytes(model, 1000)
    )
    yield Claim("an activation tensor of a generation, bytes", "24576", activation_bytes(model, 1))
    yield Claim("context, FLOPs of products", "3.47892e14", one.context_flops)
    yield Claim("generation, FLOPs of products", "8.66252e13", one.generation_flops)
    yield Claim("context, FLOPs of attention", "2.36166e12", one.context_attention_flops)
    share = one.context_attention_flops / one.context_flops
    yield Claim("the same as a share of the products, %", "0.68", 100 * share)
    yield Claim("context, FLOP per byte of weights", "1000", one.context_intensity)
    yield Claim("generation, FLOP per byte of weights", "1", one.generation_intensity)
    yield Claim("context on 8 A100, s", "0.13938", one.context_s(a100, 8, weight_bytes))
    step_s = one.generation_step_s(a100, 8, weight_bytes)
    yield Claim("a generation pass on 8 A100, ms", "21.457", 1e3 * step_s)
    yield Claim("a request on 8 A100, s", "5.4821", one.total_s(a100, 8, weight_bytes))


def traffic() -> Iterator[Claim]:
    """Yield how the traffic of a generation pass grows with the batch."""
    model = find_model("gpt-3-175b")
    for batch, percent in ((8, "9"), (32, "41"), (64, "84")):
        more = 100 * (decode_traffic_ratio(model, batch, 1000) - 1)
        yield Claim(f"batch {batch}, 1000 tokens each: more traffic, %", "0", more, "E9")
        yield Claim(f"batch {batch}, corrected, %", percent, more)
    for tokens, batch_size in ((1000, "74"), (1250, "59")):
        batch_here = batch_where_kv_outweighs_weights(model, tokens)
        yield Claim(f"batch whose KV is the layers' size, {tokens} tokens", batch_size, batch_here)


def phase_formats() -> Iterator[Claim]:
    """Yield the ideal seconds of a request with a format for each phase."""
    int8, halved = _plain("int8", 1.0), _plain("int4", 0.5)
    pairs = (
        ("fp16 in both phases", BF16, BF16, "5.482"),
        ("weight-only int8 in both", int8, int8, "2.811"),
        ("int8 products, then int8 weights", _plain("llm-int8", 1.0), int8, "2.741"),
        ("weight-only int4 in both", halved, halved, "1.475"),
    )
    ideal = ideal_deployment(find_model("gpt-3-175b"), find_hardware("a100-80gb"))
    eight = Parallel(tensor=8, link=Link(0.0, inf))
    for what, prefill, decode, printed in pairs:
        deployment = replace(ideal, prefill=prefill, decode=decode, parallel=eight)
        yield Claim(f"{what}, s", printed, ideal_request_s(deployment, _NAMED_PARAMS, 1000, 250))


def _plain(name: str, weight_bytes: float) -> Format:
    """Return a format without what its kernels lose and without its scales."""
    return replace(FORMATS[name], weight_bytes=weight_bytes, compute_share=1.0, memory_share=1.0)


_NAME = "the name rounds 174.6e9 weights up"
