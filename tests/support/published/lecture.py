"""Figures of the lecture on inference (items 1.2): products, latency, keys and values."""

from collections.abc import Iterator

from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.catalogue.layers import Attention, LatentAttention
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.step_times.roofline.decode_latency import (
    decode_latency,
    ideal_deployment,
    most_tokens_per_s,
    with_kv_heads,
)
from servetwin.sim.step_times.roofline.formats import FORMATS
from servetwin.sim.step_times.roofline.matrix_products import matmul_rows_at
from servetwin.sim.step_times.roofline.memory import memory_sizes
from servetwin.sim.techniques.attention import SlidingWindow
from servetwin.sim.techniques.setup import Setup
from tests.support.formulas.intensities import (
    attention_intensity,
    gated_ffn_intensity,
    matmul_intensity,
    per_second,
)
from tests.support.published.claim import Claim

_LATENCIES = (
    (1, 40, "26869760000", "8.0208239", "124.6755"),
    (64, 40, "79717990400", "23.7964150", "2689.4807"),
    (256, 40, "240779264000", "71.8744072", "3561.7685"),
    (64, 8, "33412874240", "9.9739923", "6416.6883"),
    (256, 8, "65625128960", "19.5895907", "13068.1648"),
)
"""Batch, KV heads; bytes in memory, ms a step, tokens/s."""


def volumes() -> Iterator[Claim]:
    """Yield what is asked of services a day, by the second."""
    yield Claim("100e9 words a day, words/s", "1157407", per_second(100e9))
    yield Claim("1e9 lines a day, lines/s", "11574", per_second(1e9))


def products() -> Iterator[Claim]:
    """Yield FLOP/byte of products in bf16, and the ridges of devices."""
    yield Claim("64 rows by 4096 x 11008, FLOP/byte", "62.6567", matmul_intensity(64, 4096, 11008))
    ridge = find_hardware("h100").ridge_flops_per_byte()
    yield Claim("ridge of an H100, FLOP/byte", "295.2239", ridge)
    yield Claim("rows that reach it", "295", matmul_rows_at(ridge, 4096, 11008), _ROWS)
    for name, printed in (("a100-80gb", "153"), ("h200", "206")):
        ridge = find_hardware(name).ridge_flops_per_byte()
        yield Claim(f"ridge of {name}, FLOP/byte", printed, ridge)
    yield Claim("gated FFN, 64 tokens", "about 64", gated_ffn_intensity(64, 4096, 11008))
    prompt, decode = attention_intensity(1024, 1024, 4096), attention_intensity(1, 1024, 4096)
    yield Claim("attention to a prompt of 1024", "512", prompt)
    yield Claim("attention of a decode, any batch", "up to 1", decode)
    ceiling = attention_intensity(10**7, 10**7, 4096)
    yield Claim("attention to endless prompts: a ceiling?", "256", ceiling, "E7")
    yield Claim(
        "a product with 1 row, FLOP/element", "about 2", 2 * matmul_intensity(1, 4096, 4096)
    )
    per_byte = matmul_intensity(1, 4096, 4096)
    yield Claim("a product with 1 row, FLOP/byte", "2", per_byte, "E6")


def latencies() -> Iterator[Claim]:
    """Yield the decode steps of Llama-2-13B on an H100, contexts of 1024 tokens."""
    shape, h100 = find_model("llama-2-13b"), find_hardware("h100")
    for batch, heads, memory, latency, rate in _LATENCIES:
        row = decode_latency(ideal_deployment(with_kv_heads(shape, heads), h100), batch, 1024)
        case = f"batch {batch}, {heads} KV heads"
        yield Claim(f"{case}: bytes", memory, row.memory_bytes)
        yield Claim(f"{case}: ms", latency, 1e3 * row.latency_s)
        yield Claim(f"{case}: tokens/s", rate, row.tokens_per_s)
    yield Claim("weights, 40 KV heads", "13015449600", shape.params())
    yield Claim("weights, 8 KV heads", "11337728000", with_kv_heads(shape, 8).params())
    most = most_tokens_per_s(ideal_deployment(shape, h100), 1024)
    yield Claim("tokens/s of endless batches", "3993.51", most)
    sequence = memory_sizes(shape, 1024).sequence_bytes
    yield Claim("KV of a sequence, bytes", "838860800", sequence)


def kept_keys() -> Iterator[Claim]:
    """Yield what is left of keys and values by latents, shared layers and windows."""
    latent = find_model("deepseek-v2")
    mixer = latent.layers[0].mixer
    assert isinstance(mixer, LatentAttention)
    keys = mixer.heads * mixer.value_dim
    yield Claim("MLA, latent alone: fewer elements", "32", keys / mixer.latent_dim)
    yield Claim("MLA, with its RoPE key: fewer elements", "28.44", keys / mixer.kv_elements())
    kept, full = 2 * latent.kv_elements_per_token(), 2.0 * 2 * keys * latent.layer_count
    yield Claim("DeepSeek-V2, bytes a token", "69120", kept)
    yield Claim("the same with full keys and values, bytes a token", "3932160", full)
    yield Claim("ratio of both", "56.9", full / kept)
    flops = mixer.decode_flops_per_pair()
    yield Claim("MLA decode, FLOPs a cached token and head", "2176", flops / mixer.heads)
    llama = find_model("llama-2-13b")
    shared = _kept(llama, kv_heads=8, kv_sharing=2) / llama.kv_elements_per_token()
    yield Claim("CLA of 2 and 8 of 40 KV heads: share left", "0.1", shared)
    halved = _kept(llama, kv_sharing=2) / llama.kv_elements_per_token()
    yield Claim("CLA of 2: share left", "0.5", halved)
    plain = Setup.of(ideal_deployment(find_model("gpt-3-175b"), find_hardware("h100")))
    mixed = SlidingWindow(window_tokens=1024, global_every=6).apply(plain)
    models = mixed.deployment.model, plain.deployment.model
    left, whole = (model.resident_kv_elements(32_768) for model in models)
    yield Claim("1 layer in 6 global, window 1024, at 32768: share left", "0.19271", left / whole)


def precisions() -> Iterator[Claim]:
    """Yield the bytes of a weight by format."""
    for name, printed in (("fp32", "4"), ("bf16", "2"), ("fp8", "1"), ("int8", "1")):
        yield Claim(f"{name}, bytes a weight", printed, FORMATS[name].weight_bytes)
    yield Claim("int4, bytes a weight", "0.50", FORMATS["int4"].weight_bytes, _SCALES)
    smaller = FORMATS["bf16"].weight_bytes / FORMATS["awq"].weight_bytes
    yield Claim("AWQ in 4 bits: less memory, times", "4.0", smaller, _SCALES)


def _kept(model: ModelShape, **changes: int) -> float:
    def change(mixer: object) -> Attention:
        assert isinstance(mixer, Attention)
        return mixer.model_copy(update=changes)

    return model.with_mixers(change).kv_elements_per_token()


_ROWS = "activations move too: a product reaches the ridge with more rows than FLOP/byte"
_SCALES = "a scale and a zero point in fp16 for every 128 weights are counted here"
