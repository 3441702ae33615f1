"""The matrix products of a model, each alone: its FLOPs, and the elements it reads and writes.

Symbols as in ``docs/techniques/roofline.md``: n rows (tokens computed), l keys attended to,
d width, h query heads, k KV heads, e head size, f FFN width. Kaplan 2020 and Pope 2022 count
likewise.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from sim.shapes.feed_forward import Dense, FeedForward
from sim.shapes.mixers import Attention
from sim.shapes.model import ModelShape

Kind = Literal["projections", "attention", "FFN"]
KINDS: tuple[Kind, ...] = ("projections", "attention", "FFN")


@dataclass(frozen=True, slots=True)
class Product:
    """``count`` equal products; ``flops`` and ``elements`` (operands and result) are of one."""

    name: str
    flops: float
    elements: float
    count: float = 1

    @property
    def intensity_flops_per_element(self) -> float:
        """FLOPs per element moved; per byte it is that over the bytes of an element."""
        return self.flops / self.elements


def product(name: str, rows: float, inner: float, columns: float, count: float = 1) -> Product:
    """(rows x inner) times (inner x columns), operands and result through memory."""
    elements = rows * inner + inner * columns + rows * columns
    return Product(name, 2 * rows * inner * columns, elements, count)


def projections(mixer: Attention, width: int, rows: int) -> list[Product]:
    """Query, key, value and output; of layers that share keys and values (CLA), one has these."""
    queries, keys = mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim
    own = 1 / mixer.kv_sharing
    return [
        product("query", rows, width, queries),
        product("key", rows, width, keys, own),
        product("value", rows, width, keys, own),
        product("output", rows, queries, width),
    ]


def attention_products(
    mixer: Attention, rows: int, keys: int, scores_in_memory: bool
) -> list[Product]:
    """Queries times keys, probabilities times values: activations times activations.

    A KV head serves h / k query heads. With FlashAttention (Dao 2022) the rows x keys scores stay
    on the chip: not ``scores_in_memory``.
    """
    group_rows = rows * mixer.heads / mixer.kv_heads
    pairs = [
        product("scores", group_rows, mixer.head_dim, keys, mixer.kv_heads),
        product("values", group_rows, keys, mixer.head_dim, mixer.kv_heads),
    ]
    if scores_in_memory:
        return pairs
    return [replace(p, elements=p.elements - group_rows * keys) for p in pairs]


def ffn_products(ffn: FeedForward, width: int, rows: int) -> list[Product]:
    """The FFN's matrices; of experts those touched, each by its share of the rows."""
    if isinstance(ffn, Dense):
        return _matrices("FFN", rows, width, ffn.width, ffn.matrices)
    touched = ffn.touched_experts(rows)
    each = rows * ffn.top_k / touched
    return [
        product("router", rows, width, ffn.experts),
        *_matrices("expert", each, width, ffn.width, ffn.matrices * touched),
        *_matrices("shared expert", rows, width, ffn.shared_width, ffn.matrices),
    ]


def model_products(
    model: ModelShape, rows: int, keys: int, scores_in_memory: bool = True
) -> dict[Kind, list[Product]]:
    """All products of all layers by kind, without the head.

    Layers that mix by latents or states have no products of this form: only their FFN is there.
    """
    found: dict[Kind, list[Product]] = {kind: [] for kind in KINDS}
    for group in model.layers:
        here: dict[Kind, list[Product]] = {"FFN": ffn_products(group.ffn, model.width, rows)}
        if isinstance(group.mixer, Attention):
            here["projections"] = projections(group.mixer, model.width, rows)
            here["attention"] = attention_products(group.mixer, rows, keys, scores_in_memory)
        for kind, products in here.items():
            found[kind] += [replace(p, count=p.count * group.count) for p in products]
    return {kind: products for kind, products in found.items() if products}


def intensity_flops_per_element(products: Iterable[Product]) -> float:
    """FLOPs over elements of several products together."""
    listed = list(products)
    flops = sum(p.count * p.flops for p in listed)
    return flops / sum(p.count * p.elements for p in listed)


def _matrices(name: str, rows: float, width: int, inner: int, count: float) -> list[Product]:
    return [product(name, rows, width, inner, count)] if inner and count else []
