"""Figures of the overview of techniques (items 1.1): metrics, passes, occupancy."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import pandas as pd

from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.records.metrics import derive, figure, summarize
from servetwin.sim.step_times.acceptance import Chain, Tree
from servetwin.sim.step_times.roofline.decode_latency import ideal_deployment
from servetwin.sim.step_times.roofline.deployment import IDEAL_KERNELS, EarlyExit
from servetwin.sim.step_times.roofline.step_cost import StepCost
from tests.support.acceptance import mean_passes, mean_tokens_per_pass
from tests.support.formulas.speculation import needed_alpha
from tests.support.formulas.techniques import (
    early_exit_gain_limit,
    routed_cost,
    score_elements,
    small_first_cost,
    split_gain_limit,
    token_passes,
)
from tests.support.published.claim import Claim

_TOKENS_PER_PASS = {
    0.5: ("1.5", "1.75", "1.875", "1.9375", "1.96875", "1.996094"),
    0.6: ("1.6", "1.96", "2.176", "2.3056", "2.38336", "2.474806"),
    0.7: ("1.7", "2.19", "2.533", "2.7731", "2.94117", "3.198819"),
    0.8: ("1.8", "2.44", "2.952", "3.3616", "3.68928", "4.328911"),
    0.9: ("1.9", "2.71", "3.439", "4.0951", "4.68559", "6.125795"),
}
_DRAFTS = (1, 2, 3, 4, 5, 8)


def metrics() -> Iterator[Claim]:
    """Yield the metrics of three requests that arrive at seconds 0, 1 and 2."""
    stamps = {
        "status": "finished",
        "scheduled_s": [0.0, 1.0, 2.0],
        "first_token_s": [0.5, 2.0, 2.5],
        "last_token_s": [4.5, 3.0, 5.5],
        "prompt_tokens": 1,
        "output_tokens": [5, 3, 4],
        "cached_tokens": 0,
        "preemptions": 0,
    }
    summary = summarize(derive(pd.DataFrame(stamps)))
    for what, printed, name in (
        ("mean time to first token, s", "0.666667", "ttft_s.mean"),
        ("throughput, output tokens/s", "2.181818", "output_throughput_tokens_per_s"),
        ("TPS of a whole request, tokens/s", "1.251323", "request_tps.mean"),
        ("TPS of decoding alone, tokens/s", "1.333333", "decode_tps.mean"),
    ):
        yield Claim(what, printed, figure(summary, name) or 0.0)


def kv_cache() -> Iterator[Claim]:
    """Yield the token passes of a prompt of 1000 and an answer of 250, with and without a cache."""
    without, with_it = (token_passes(1000, 250, cached) for cached in (False, True))
    yield Claim("token passes without a cache", "281125", without)
    yield Claim("token passes with a cache", "1249", with_it)
    yield Claim("ratio", "225.08", without / with_it)


def attention_kernels() -> Iterator[Claim]:
    """Yield how much of an A100 a decode fills, and what attention to a prompt keeps."""
    a100 = find_hardware("a100-80gb")
    filled: list[tuple[str, str, str, Literal["heads", "split"]]] = [
        ("an A100 filled by a decode of 8 KV heads, %", "7.4", "llama-3-8b", "heads"),
        ("an A100 filled by a decode of 32 KV heads, %", "29.6", "llama-2-7b", "heads"),
        ("the same, 8 KV heads, 8192 keys in splits of 256, %", "100", "llama-3-8b", "split"),
    ]
    for what, printed, name, occupancy in filled:
        model = find_model(name)
        kernels = replace(IDEAL_KERNELS, occupancy=occupancy, split_tokens=256)
        deployment = replace(ideal_deployment(model, a100), kernels=kernels)
        share = StepCost(deployment).attention.occupancy(model.layers[0].mixer, 1, 8192)
        yield Claim(what, printed, 100 * share)
    bound = split_gain_limit(a100.compute_units, 1, 8)
    yield Claim("most that splitting gains there", "13.5", bound)
    scores = [score_elements(4096, flash) for flash in (False, True)]
    yield Claim("scores of a head kept for 4096 tokens", "16777216", scores[0])
    yield Claim("maxima and sums kept by FlashAttention", "8192", scores[1])


def several_tokens() -> Iterator[Claim]:
    """Yield what techniques gain that make several tokens a pass, or run fewer layers."""
    yield Claim("passes of 100 tokens in blocks of 4", "26", 1 + mean_passes(Chain(1.0, 3), 100))
    tree = mean_tokens_per_pass(Tree(0.6, (3, 2, 1, 1)))
    yield Claim("tokens a pass, tree of widths 3, 2, 1, 1 at 0.6", "3.4770304", tree)
    exits = EarlyExit(((0.5, 0.75), (1.0, 0.25)))
    yield Claim("early exit, half way in 3 of 4", "1.6", early_exit_gain_limit(exits))
    yield Claim("cascade with a router: cost", "0.47", routed_cost(0.1, 0.6, 0.01))
    yield Claim("cascade, small model first: cost", "0.50", small_first_cost(0.1, 0.6))


def speculation() -> Iterator[Claim]:
    """Yield the mean tokens a pass of a chain of drafts, and the acceptance for twice the speed."""
    for alpha, row in _TOKENS_PER_PASS.items():
        for drafts, printed in zip(_DRAFTS, row, strict=True):
            tokens = mean_tokens_per_pass(Chain(alpha, drafts))
            why = _MISPRINT if (alpha, drafts) == (0.7, 8) else ""
            yield Claim(f"acceptance {alpha}, drafts {drafts}: tokens a pass", printed, tokens, why)
    yield Claim("acceptance for 2 x, 4 drafts of 5 % each", "0.6222", needed_alpha(2.0, 4, 0.05))


_MISPRINT = "a slip in the last digits: 1 + 0.7 + ... + 0.7^8 is 3.19882131"
