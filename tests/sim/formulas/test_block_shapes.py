"""Shapes through one block, against a block computed with numpy."""

import numpy as np
import numpy.typing as npt
import pytest

from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.catalogue.layers import Attention, Dense
from servetwin.sim.catalogue.model import LayerGroup, ModelShape
from servetwin.sim.step_times.roofline.matrix_products import model_products
from servetwin.workloads.errors import PolicyError
from tests.support.formulas.block_shapes import block_shapes

FloatArray = npt.NDArray[np.float64]
LLAMA = find_model("llama-2-7b")
SMALL = ModelShape(
    name="small", width=12, vocabulary=17, source="a test",
    layers=(
        LayerGroup(
            count=1,
            mixer=Attention(heads=6, kv_heads=2, head_dim=2),
            ffn=Dense(width=20, matrices=2),
        ),
    ),
)  # fmt: skip


class CountedBlock:
    """One block of ``SMALL`` with random weights; FLOPs of every product are counted."""

    def __init__(self) -> None:
        draw = np.random.default_rng(0).standard_normal
        self.embedding, self.head = draw((12, 17)), draw((17, 12))
        self.queries, self.keys, self.values = draw((6, 2, 12)), draw((2, 2, 12)), draw((2, 2, 12))
        self.out, self.up, self.down = draw((12, 12)), draw((20, 12)), draw((12, 20))
        self.flops = 0
        self.seen: dict[str, tuple[int, ...]] = {}

    def times(self, left: FloatArray, right: FloatArray) -> FloatArray:
        self.flops += 2 * left.shape[0] * left.shape[1] * right.shape[1]
        product: FloatArray = left @ right
        return product

    def run(self, ids: list[int], before: list[tuple[FloatArray, FloatArray]]) -> None:
        """New tokens behind the cached keys and values of each KV head."""
        tokens = np.eye(17)[:, ids]
        x = self.embedding @ tokens
        heads = []
        for head in range(6):
            group = head // 3
            query = self.times(self.queries[head], x)
            cached, kept = before[group]
            if head % 3 == 0:  # a KV head serves three
                key, value = self.times(self.keys[group], x), self.times(self.values[group], x)
                before[group] = np.hstack([cached, key]), np.hstack([kept, value])
                self.note({"key of a head": key, "cached keys before": cached})
                cached, kept = before[group]
            scores = self.times(cached.T, query)
            heads.append(self.times(kept, scores))
            self.note({"query of a head": query, "cached keys": cached, "scores of a head": scores})
        together = np.vstack(heads)
        attended = self.times(self.out, together)
        inner = self.times(self.up, attended)
        y = self.times(self.down, inner)
        self.note({"tokens": tokens, "block input": x, "output of a head": heads[0]})
        self.note({"all heads": together, "attention output": attended, "FFN inside": inner})
        self.note({"block output": y, "logits": self.head @ y})

    def note(self, arrays: dict[str, FloatArray]) -> None:
        self.seen |= {name: array.shape for name, array in arrays.items()}


@pytest.mark.parametrize(("rows", "context"), [(1, 1), (1, 9), (5, 5), (4, 9)])
def test_shapes_and_flops_are_those_of_a_block_that_runs(rows: int, context: int) -> None:
    """Prefill (all rows new), decode (one new row), and a chunk behind a cache."""
    block = CountedBlock()
    empty = np.zeros((2, context - rows))
    block.run(list(range(rows)), [(empty, empty), (empty, empty)])
    assert block.seen == block_shapes(SMALL, rows, context)
    counted = model_products(SMALL, rows, context).values()
    assert block.flops == sum(p.count * p.flops for products in counted for p in products)


def test_prefill_is_decode_with_n_columns_for_one() -> None:
    one, many = block_shapes(LLAMA, 1, 600), block_shapes(LLAMA, 512, 600)
    assert one["tokens"] == (32_000, 1)
    assert one["query of a head"] == (4096 // 32, 1)
    assert one["cached keys before"] == (128, 599)
    assert one["cached keys"] == (128, 600)
    assert one["scores of a head"] == (600, 1)
    for name in one.keys() - {"cached keys before", "cached keys"}:
        assert many[name] == (one[name][0], 512)


@pytest.mark.parametrize(
    ("model", "rows", "context", "reason"),
    [
        ("llama-2-7b", 2, 1, "2 rows cannot end a context of 1"),
        ("llama-2-7b", 0, 1, "0 rows"),
        ("mamba-2.8b", 1, 1, "mamba-2.8b"),
        ("mixtral-8x7b", 1, 1, "mixtral-8x7b"),
    ],
)
def test_shapes_that_cannot_be(model: str, rows: int, context: int, reason: str) -> None:
    with pytest.raises(PolicyError, match=reason):
        block_shapes(find_model(model), rows, context)
