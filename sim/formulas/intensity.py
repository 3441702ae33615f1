"""Arithmetic intensity: FLOPs per element or per byte moved, and where it meets a ridge.

Williams 2009 (roofline). Two ways to count attention, both here: its scores travel through memory
(``scores_in_memory``; tends to twice the head size), or they stay on the chip (FlashAttention, Dao
2022; no ceiling).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from sim.formulas.products import Kind, intensity_flops_per_element, model_products
from sim.shapes.model import ModelShape

BF16_BYTES = 2.0


@dataclass(frozen=True, slots=True)
class Intensity:
    """One cell of an intensity table: ``rows`` tokens that attend to ``keys``."""

    kind: Kind
    scores_in_memory: bool
    rows: int
    keys: int
    flops_per_element: float


def intensity_table(
    model: ModelShape, rows: Iterable[int], keys: Iterable[int], scores_in_memory: bool = True
) -> list[Intensity]:
    """Every kind of product for all n of ``rows`` and l of ``keys`` with n <= l."""
    cells = [(n, length) for length in keys for n in rows if n <= length]
    return [
        Intensity(kind, scores_in_memory, n, length, intensity_flops_per_element(products))
        for n, length in cells
        for kind, products in model_products(model, n, length, scores_in_memory).items()
    ]


def matmul_intensity(
    rows: float, inner: float, columns: float, element_bytes: float = BF16_BYTES
) -> float:
    """FLOP/byte of (rows x inner) (inner x columns): tends to rows for wide matrices at 2 bytes."""
    elements = rows * inner + inner * columns + rows * columns
    return 2 * rows * inner * columns / elements / element_bytes


def matmul_rows_at(
    flops_per_byte: float, inner: float, columns: float, element_bytes: float = BF16_BYTES
) -> float:
    """Rows at which a product reaches an intensity, such as a ridge; infinite where none do."""
    per_element = flops_per_byte * element_bytes
    weights = inner * columns
    room = 2 * weights - per_element * (inner + columns)
    return per_element * weights / room if room > 0 else inf


def gated_ffn_intensity(tokens: float, width: float, inner: float) -> float:
    """FLOP/byte of a gated FFN at 2 bytes: 6 T D F / (4 T D + 4 T F + 6 D F), about T.

    Input and output, gate and up projection travel once each; their product is fused.
    """
    flops = 6 * tokens * width * inner
    return flops / (4 * tokens * width + 4 * tokens * inner + 6 * width * inner)


def attention_intensity(queries: float, keys: float, width: float, batch: float = 1) -> float:
    """FLOP/byte of FlashAttention at 2 bytes: T S / (T + S), whatever the batch and the width."""
    flops = 4 * batch * queries * keys * width
    return flops / (4 * batch * (queries + keys) * width)


def attention_limit_flops_per_element(head_dim: int) -> float:
    """What attention tends to for many queries and keys, scores through memory: 2 e."""
    return 2.0 * head_dim
