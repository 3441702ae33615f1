"""Arithmetic intensities of textbooks: FLOP per byte of products and of attention."""

from servetwin.sim.step_times.roofline.decode_latency import SECONDS_PER_DAY
from servetwin.sim.step_times.roofline.matrix_products import BF16_BYTES


def matmul_intensity(
    rows: float, inner: float, columns: float, element_bytes: float = BF16_BYTES
) -> float:
    """Return FLOP/byte of (rows x inner) (inner x columns): about rows if wide, at 2 bytes."""
    elements = rows * inner + inner * columns + rows * columns
    return 2 * rows * inner * columns / elements / element_bytes


def gated_ffn_intensity(tokens: float, width: float, inner: float) -> float:
    """Return FLOP/byte of a gated FFN at 2 bytes: 6 T D F / (4 T D + 4 T F + 6 D F), about T.

    Input and output, gate and up projection travel once each; their product is fused.
    """
    flops = 6 * tokens * width * inner
    return flops / (4 * tokens * width + 4 * tokens * inner + 6 * width * inner)


def attention_intensity(queries: float, keys: float, width: float, batch: float = 1) -> float:
    """Return FLOP/byte of FlashAttention at 2 bytes: T S / (T + S), for any batch and width."""
    flops = 4 * batch * queries * keys * width
    return flops / (4 * batch * (queries + keys) * width)


def attention_limit_flops_per_element(head_dim: int) -> float:
    """Return what attention tends to for many queries and keys, scores through memory: 2 e."""
    return 2.0 * head_dim


def per_second(per_day: float) -> float:
    """Return a daily volume, spread evenly."""
    return per_day / SECONDS_PER_DAY
