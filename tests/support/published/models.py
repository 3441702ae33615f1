"""Figures of the models behind the techniques (items 2): steps, messages, memory, queues."""

from collections.abc import Iterator
from dataclasses import replace

from servetwin.policies.batch import BatchShape
from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.catalogue.hardware import Link
from servetwin.sim.step_times.roofline.decode_latency import RooflineEstimate, ideal_deployment
from servetwin.sim.step_times.roofline.efficiency import IDEAL
from tests.support.formulas.techniques import (
    chunk_passes,
    fetch_s_per_token,
    kv_tokens_read,
    overlap_block_tokens,
    recompute_s_per_token,
    shared_prefix_hit_rate,
)
from tests.support.published.claim import Claim
from tests.support.theory.queues import md1_wait_s
from tests.support.theory.serving import (
    copy_on_write,
    goodput_per_device_per_s,
    kv_transfer_s,
    mean_paged_waste_tokens,
    pipeline_bubble,
    pipelined_prefill_ttft_s,
    prefill_ttft_s,
    tensor_parallel_prefill_ttft_s,
)

_DECODE = {"projections", "FFN", "head", "decode attention"}
_PROMPT = {"projections", "FFN"}


def ideal_steps() -> Iterator[Claim]:
    """Yield steps of Llama-2-7B on an ideal A100, in ms."""
    for batch, context, printed in (
        (1, 128, "6.5136"),
        (32, 1024, "14.9063"),
        (128, 1024, "40.1832"),
    ):
        contexts = (context,) * batch
        shape = BatchShape(batch, sum(contexts), batch, decode_contexts=contexts)
        yield Claim(f"decode, batch {batch}, l = {context}", printed, _step_ms(shape, _DECODE))
    for tokens, printed in ((128, "6.3521"), (512, "21.4761"), (2048, "88.5450")):
        shape = BatchShape(0, 0, 0, ((0, tokens),))
        yield Claim(f"prompt of {tokens}", printed, _step_ms(shape, _PROMPT))


def parallel() -> Iterator[Claim]:
    """Yield messages, bubbles and rings of several devices."""
    nvlink = Link(5e-6, 200e9)
    ring_s = nvlink.all_reduce_s(16 * 1024, 8, "ring")
    yield Claim("16 KiB summed over 8 in a ring, us", "70.14", 1e6 * ring_s)
    yield Claim("sums of a pass of 80 layers", "160", 2 * find_model("llama-2-70b").layer_count)
    yield Claim("bubble, 4 stages and 8 pieces", "0.2727", pipeline_bubble(4, 8))
    yield Claim("tokens a device that hide a ring", "1040", overlap_block_tokens(312e12, 300e9))


def serving() -> Iterator[Claim]:
    """Yield chunks, shared prefixes, copied blocks and what waits in blocks."""
    yield Claim("passes of 4096 tokens in chunks of 512", "8", chunk_passes(4096, 512))
    yield Claim("positions read by them", "18432", kv_tokens_read(4096, 512))
    yield Claim(
        "8 prompts of 640 that share 512: hit rate", "0.7", shared_prefix_hit_rate(8, 512, 640)
    )
    forked = copy_on_write(100, 50, 4, 16)
    yield Claim("4 answers of 50 to 100 tokens: blocks", "22", forked.blocks)
    yield Claim("the same, nothing shared: blocks", "40", forked.unshared_blocks)
    yield Claim("the same: blocks copied", "3", forked.copies)
    yield Claim("unused slots of a last block of 16", "7.5", mean_paged_waste_tokens(16))


def offloading() -> Iterator[Claim]:
    """Yield keys and values of OPT-13B: fetched from the host, or computed anew."""
    ideal = ideal_deployment(find_model("opt-13b"), find_hardware("a100-80gb"))
    linked = replace(ideal.offload, bytes_per_s=25e9)
    deployment = replace(ideal, efficiency=replace(IDEAL, compute=0.6), offload=linked)
    yield Claim("fetched at 25 GB/s, us a token", "32.8", 1e6 * fetch_s_per_token(deployment))
    anew_s = recompute_s_per_token(deployment)
    yield Claim("computed at 60 % of 312 TFLOP/s, us a token", "134.4", 1e6 * anew_s)


def states() -> Iterator[Claim]:
    """Yield the states of models without keys and values."""
    mamba, retnet = find_model("mamba-2.8b"), find_model("retnet-like-7b")
    yield Claim("Mamba-2.8B, elements", "5242880", mamba.state_elements())
    yield Claim("the same in tokens of 163840 elements", "32", mamba.state_elements() / 163_840)
    yield Claim("RetNet of 32 layers, 4096 wide, elements", "16777216", retnet.state_elements())


def disaggregation() -> Iterator[Claim]:
    """Yield what is handed over between prefill and decode, and both queues."""
    per_token = 2 * find_model("opt-66b").kv_elements_per_token()
    sent = kv_transfer_s(512, per_token, 2**30)
    yield Claim("OPT-66B, 512 tokens, GiB", "1.125", sent)
    yield Claim("ten a second, GiB/s", "11.25", 10 * sent)
    yield Claim("first token, one device, s", "0.15", prefill_ttft_s(5.0, 0.1))
    yield Claim("first token, 2 stages, s", "0.108333", pipelined_prefill_ttft_s(5.0, 0.1))
    two_way = tensor_parallel_prefill_ttft_s(5.0, 0.1, 1.6)
    yield Claim("first token, 2 ways, 1.6 times as fast, s", "0.0767045", two_way)
    yield Claim(
        "goodput of 2 + 1 devices, requests/s", "3.33", goodput_per_device_per_s(2, 5.6, 1, 10.0)
    )


def queues() -> Iterator[Claim]:
    """Yield waits of queues that the simulator is judged by."""
    for load, printed in ((0.5, "0.5"), (0.8, "2"), (0.9, "4.5")):
        yield Claim(f"M/D/1 at load {load}, service 1: wait", printed, md1_wait_s(load, 1.0))


def _step_ms(shape: BatchShape, traffic: set[str]) -> float:
    """Return a step whose traffic is that of some operators, as the notes count it."""
    a100 = find_hardware("a100-80gb")
    step = RooflineEstimate.of(ideal_deployment(find_model("llama-2-7b"), a100), shape)
    moved = sum(o.moved_bytes for o in step.operators if o.name in traffic)
    return 1e3 * max(step.compute_s, moved / a100.memory_bytes_per_s)
