"""The mixture of experts against its definition, row by row."""

from dataclasses import dataclass, field

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from servetwin.engine.models.experts import Experts
from servetwin.engine.models.linear import Linear, LinearMap
from servetwin.engine.models.model_config import ExpertConfig

HIDDEN = 16


def network(prefix: str, width: int, generator: torch.Generator) -> dict[str, Tensor]:
    return {
        f"{prefix}gate_up": torch.randn(2 * width, HIDDEN, generator=generator) / 4,
        f"{prefix}down": torch.randn(HIDDEN, width, generator=generator) / 4,
    }


def drawn(config: ExpertConfig) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    weights = {"router": torch.randn(config.experts, HIDDEN, generator=generator)}
    for index in range(config.experts):
        weights |= network(f"experts.{index}.", config.ffn_size, generator)
    if config.shared_size:
        weights |= network("shared.", config.shared_size, generator)
    return weights


@dataclass
class Counting:
    """Makes plain products that note under which names they ran, and on how many rows."""

    rows: dict[str, int] = field(default_factory=dict)

    def __call__(self, name: str, weight: Tensor) -> LinearMap:
        return _Counted(name, weight, self.rows)


class _Counted(Linear):
    def __init__(self, name: str, weight: Tensor, rows: dict[str, int]) -> None:
        super().__init__(weight, prepack=False)
        self._name, self._rows = name, rows

    def __call__(self, x: Tensor) -> Tensor:
        assert self._name not in self._rows, "an expert ran twice"
        self._rows[self._name] = x.shape[0]
        return super().__call__(x)


def swiglu(x: Tensor, weights: dict[str, Tensor], prefix: str) -> Tensor:
    gate, up = (weights[f"{prefix}gate_up"] @ x).chunk(2)
    return weights[f"{prefix}down"] @ (F.silu(gate) * up)


def by_definition(x: Tensor, weights: dict[str, Tensor], top_k: int) -> Tensor:
    chances = (weights["router"] @ x).softmax(0)
    best = chances.topk(top_k)
    parts = zip(best.values / best.values.sum(), best.indices.tolist(), strict=True)
    outputs = [share * swiglu(x, weights, f"experts.{i}.") for share, i in parts]
    mixed = torch.stack(outputs).sum(0)
    return mixed + swiglu(x, weights, "shared.") if "shared.down" in weights else mixed


@pytest.mark.parametrize("rows", [1, 2, 40])
@pytest.mark.parametrize("shared_size", [0, 12])
def test_each_row_is_the_weighted_sum_of_its_experts(rows: int, shared_size: int) -> None:
    config = ExpertConfig(experts=8, top_k=3, ffn_size=6, shared_size=shared_size)
    weights, counting = drawn(config), Counting()
    x = torch.randn(rows, HIDDEN, generator=torch.Generator().manual_seed(rows))
    mixed = Experts(config, weights, counting)(x)
    for row, output in zip(x, mixed, strict=True):
        torch.testing.assert_close(output, by_definition(row, weights, 3), rtol=0, atol=1e-6)
    experts = {n: rows for n, rows in counting.rows.items() if n.startswith("experts.")}
    assert sum(experts.values()) == 2 * 3 * rows
    assert min(experts.values()) > 0
    assert {"experts.0.gate_up", "experts.0.down"} <= set(experts) or rows < 40
    assert ("shared.gate_up" in counting.rows) == bool(shared_size)
