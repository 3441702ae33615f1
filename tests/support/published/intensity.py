"""Figures of the analysis of arithmetic intensity (items 1.4), Llama-2-7B."""

from collections.abc import Iterator

from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.step_times.acceptance import Chain
from servetwin.sim.step_times.roofline.matrix_products import (
    Kind,
    intensity_table,
    token_work,
    total_work,
    with_ffn_matrices,
)
from servetwin.sim.step_times.roofline.memory import memory_sizes
from tests.support.acceptance import mean_tokens_per_pass
from tests.support.formulas.block_shapes import block_shapes
from tests.support.formulas.intensities import attention_limit_flops_per_element
from tests.support.formulas.speculation import streamed_pass_s
from tests.support.formulas.techniques import break_even_rank
from tests.support.published.claim import Claim

_ROWS = (1, 2, 4, 8, 128, 512, 4096)
_KEYS = (128, 512, 4096, 32_000)
_ANY = ("1.999024", "3.996098", "7.984405", "15.93774", "240.9412", "819.2", "2730.667")
_FFN = ("1.999330", "3.997322", "7.989295", "15.95724", "245.4746", "874.0844", "3453.490")
_ATTENTION = (
    ("1.969231", "3.878788", "7.529412", "14.22222", "85.33333"),
    ("1.980658", "3.923372", "7.699248", "14.84058", "113.7778", "170.6667"),
    ("1.984016", "3.936569", "7.750237", "15.03119", "126.0308", "199.8049", "240.9412"),
    ("1.984435", "3.938219", "7.756636", "15.05528", "127.7445", "204.1467", "247.2833"),
)
_PER_TOKEN = (
    (128, "64", "32", "9664", "4832"),
    (512, "256", "128", "9856", "4928"),
    (4096, "2048", "1024", "11648", "5824"),
    (32_768, "8192", "8192", "25984", "12992"),
)
"""Position; FLOPs and elements of attention, then of all, in 2^20."""
_SHAPES = {
    "tokens": "32000 x {}",
    "query of a head": "128 x {}",
    "key of a head": "128 x {}",
    "scores of a head": "{l} x {}",
    "all heads": "4096 x {}",
    "FFN inside": "11008 x {}",
    "logits": "32000 x {}",
}
_STREAMED = (
    (0.0, None, "0.5195"),
    (3.5, None, "0.9524"),
    (0.5, None, "0.5556"),
    (0.5, (0.6, 4), "1.2809"),
    (0.5, (0.8, 4), "1.8676"),
    (0.5, (0.8, 8), "2.4050"),
)
"""GB of the target that stay, acceptance and drafts of a hidden draft; tokens/s."""
_UNIT = 2**20


def shapes() -> Iterator[Claim]:
    """Yield the matrices of a block for a decode behind 599 tokens, and a prompt of 512."""
    model = find_model("llama-2-7b")
    for phase, rows, keys in (("decode", 1, 600), ("prefill", 512, 512)):
        found = block_shapes(model, rows, keys)
        for name, printed in _SHAPES.items():
            here = " x ".join(map(str, found[name]))
            yield Claim(f"{phase}: {name}", printed.format(rows, l=keys), here)
        cached = " x ".join(map(str, found["cached keys before"]))
        yield Claim(f"{phase}: cached keys of a head", f"128 x {keys - rows}", cached)


def intensities() -> Iterator[Claim]:
    """Yield FLOP per element of all 75 cells that are printed, and the limits beside them."""
    model = find_model("llama-2-7b")
    cells = intensity_table(model, _ROWS, _KEYS)
    for keys, attention in zip(_KEYS, _ATTENTION, strict=True):
        printed: dict[Kind, tuple[str, ...]] = {
            "projections": _ANY,
            "attention": attention,
            "FFN": _FFN,
        }
        for kind, row in printed.items():
            for rows, figure in zip(_ROWS, row, strict=False):
                if rows <= keys:
                    yield Claim(f"{kind}, n = {rows}, l = {keys}", figure, cells[kind, rows, keys])
    for rows in (1, 2, 4, 8):
        yield Claim(f"n = {rows}: about 2 n", f"about {2 * rows}", cells["FFN", rows, 4096])
    limit = attention_limit_flops_per_element(model.attentions()[0].head_dim)
    yield Claim("attention, n and l endless", "256", limit)
    on_chip = intensity_table(model, (4096,), (4096,), scores_in_memory=False)
    flash = on_chip["attention", 4096, 4096]
    yield Claim("attention, n = l = 4096, its scores on the chip", "240.9412", flash, "E7")


def small_card() -> Iterator[Claim]:
    """Yield the ridge of an RTX 4060, as printed and by the vendor."""
    card = find_hardware("rtx-4060")
    yield Claim("peak, TFLOP/s", "15.39", card.peak("fp32") / 1e12, "E5")
    yield Claim("bandwidth, GB/s", "768", card.memory_bytes_per_s / 1e9, "E5")
    yield Claim("ridge, FLOP/byte", "20.04", card.ridge_flops_per_byte("fp32"), "E5")
    yield Claim("ridge from the printed figures, FLOP/byte", "20.04", 15.39e12 / 768e9)
    per_element = 2 * 15.39e12 / 768e9
    yield Claim("the same, FLOP per element of fp16", "20.04", per_element, "E6")


def token_products() -> Iterator[Claim]:
    """Yield the FLOPs and the elements of a token, in units of 2^20."""
    model = find_model("llama-2-7b")
    two = with_ffn_matrices(model, 2)
    work = token_work(two, 128)
    projected, fed = work["projections"], work["FFN"]
    yield Claim("projections, FLOPs", "4096", projected.flops / _UNIT)
    yield Claim("projections, FLOPs in 10^6", "4096", projected.flops / 1e6, "E2")
    yield Claim("projections, elements", "2048", projected.elements / _UNIT)
    moved = model.layer_count * 4 * (2 + model.width) * model.width
    yield Claim("projections, elements with activations", "2048", moved / _UNIT, "E10")
    yield Claim("FFN of 2 matrices, FLOPs", "5504", fed.flops / _UNIT)
    yield Claim("FFN of 2 matrices, elements", "2752", fed.elements / _UNIT)
    own = token_work(model, 128)["FFN"]
    yield Claim("FFN as Llama-2 has it, FLOPs", "5504", own.flops / _UNIT, "E3")
    yield Claim("FFN as Llama-2 has it, elements", "2752", own.elements / _UNIT, "E3")
    for position, flops, elements, all_flops, all_elements in _PER_TOKEN:
        work = token_work(two, position)
        attention, total = work["attention"], total_work(work)
        why = "E1" if position == 32_768 else ""
        yield Claim(f"attention at {position}, FLOPs", flops, attention.flops / _UNIT, why)
        yield Claim(f"attention at {position}, elements", elements, attention.elements / _UNIT)
        yield Claim(f"all at {position}, FLOPs", all_flops, total.flops / _UNIT)
        yield Claim(f"all at {position}, elements", all_elements, total.elements / _UNIT)
    one, next_one = (total_work(token_work(two, position)) for position in (1000, 1001))
    yield Claim("one position more, FLOPs", "524288", next_one.flops - one.flops)
    yield Claim("one position more, elements", "262144", next_one.elements - one.elements)


def kept_tokens() -> Iterator[Claim]:
    """Yield the keys and values of Llama-2-7B."""
    model = find_model("llama-2-7b")
    elements = model.kv_elements_per_token()
    yield Claim("elements a token", "524288", elements, "E4")
    yield Claim("bytes a token in fp16", "2097152", 2 * elements, "E4")
    sequence = memory_sizes(model, 32_768).sequence_bytes
    yield Claim("32768 tokens in fp16, GiB", "64", sequence / 2**30, "E4")
    yield Claim("corrected: elements a token", "262144", elements)
    yield Claim("corrected: KiB a token in fp16", "512", 2 * elements / 2**10)
    yield Claim("corrected: 32768 tokens in fp16, GiB", "16", sequence / 2**30)
    rank = break_even_rank(4096, model.width)
    yield Claim("rank below which 4096 tokens shrink", "2048", rank)


def streamed_speculation() -> Iterator[Claim]:
    """Yield a 13B model of 7.7 GB behind storage of 4 GB/s, with 3.5 GB of memory."""
    yield Claim("all streamed, s a pass", "1.925", streamed_pass_s(7.7e9, 0, 4e9))
    for resident_gb, law, printed in _STREAMED:
        pass_s = streamed_pass_s(7.7e9, resident_gb * 1e9, 4e9)
        tokens = mean_tokens_per_pass(Chain(*law)) if law else 1.0
        draft = f", draft hidden, acceptance {law[0]}, drafts {law[1]}" if law else ""
        yield Claim(f"{resident_gb:g} GB resident{draft}: tokens/s", printed, tokens / pass_s)
