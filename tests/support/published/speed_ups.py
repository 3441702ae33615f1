"""Measured speed-ups of papers over what bytes and FLOPs allow: what kernels leave of the ideal."""

from collections.abc import Iterator

from servetwin.policies.batch import BatchShape
from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.step_times.acceptance import Tree
from servetwin.sim.step_times.roofline.decode_latency import ideal_deployment
from servetwin.sim.step_times.roofline.step_time import roofline_step_time
from servetwin.sim.techniques.registry import find_technique
from servetwin.sim.techniques.setup import Setup
from tests.support.acceptance import mean_tokens_per_pass
from tests.support.published.claim import Claim

_DECODE = BatchShape(1, 128, 1)
_PROMPT = BatchShape(0, 0, 0, ((0, 512),))


def over_ideal() -> Iterator[Claim]:
    """Yield published speed-ups beside those of the same formats on an ideal A100."""
    for what, text, shape, published in (
        ("AWQ in 3 bits, a decode", "awq:bits=3", _DECODE, 3.2),
        ("SmoothQuant, a prompt of 512", "smooth-quant", _PROMPT, 1.56),
    ):
        ideal = _speed_up(text, shape)
        why = f"{published / ideal:.0%} of the ideal: kernels unpack numbers beside the products"
        yield Claim(f"{what}: times as fast", f"{published:g}", ideal, why)
    slower = 1 / _speed_up("llm-int8", _DECODE)
    yield Claim("LLM.int8, a decode: times as slow", "1.15 to 1.23", slower)
    tokens = mean_tokens_per_pass(Tree(0.6, (3, 2, 1, 1)))
    yield Claim("trees of drafts: times as fast", "1.5 to 2.5", tokens, _FREE_DRAFTS)


def _speed_up(technique: str, shape: BatchShape) -> float:
    without = Setup.of(ideal_deployment(find_model("llama-2-7b"), find_hardware("a100-80gb")))
    with_it = find_technique(technique).apply(without)
    slow, fast = (
        float(roofline_step_time(setup.deployment).seconds(shape)[0])
        for setup in (without, with_it)
    )
    return slow / fast


_FREE_DRAFTS = "3.48 tokens a pass are the ideal: drafting and verifying take no time in it"
