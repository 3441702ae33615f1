"""One rank of tensor parallelism: its slice of the model, and the sums over all ranks.

Two all-reduces a layer, after the products ``attention_out`` and ``down`` (Megatron-LM, Shoeybi
2019), and one gather of the logits.
"""

from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from servetwin.engine.models.linear import LinearMap, MakeLinear

# How long ranks wait for each other: at the start, and for a sum.
MEETING_S = 120.0


class TensorRank:
    """The place of this process among ``ways`` processes that share a model."""

    def __init__(self, rank: int, ways: int) -> None:
        self.rank, self.ways = rank, ways

    def device(self, name: str) -> str:
        """Return the device of the rank: CUDA devices in order, or the one CPU."""
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        return f"cuda:{self.rank}" if name == "cuda" else name

    def meet(self, meeting: Path, device: str) -> None:
        """Wait for the other ranks at a file that all of them see."""
        dist.init_process_group(
            "nccl" if device.startswith("cuda") else "gloo",
            init_method=meeting.as_uri(),
            rank=self.rank,
            world_size=self.ways,
            timeout=timedelta(seconds=MEETING_S),
        )

    def maker(self, make: MakeLinear) -> MakeLinear:
        """Return what makes products of the slice, each with its sum over the ranks."""

        def make_slice(name: str, weight: Tensor) -> LinearMap:
            product = make(name, weight)
            match name.rpartition(".")[2]:
                case "attention_out" | "down":
                    return _Summed(product)
                case "head":
                    return _Gathered(product, self.ways)
            return product

        return make_slice


class _Summed:
    """A product whose inputs are divided: the ranks' results are added."""

    def __init__(self, product: LinearMap) -> None:
        self._product = product
        self.backend = product.backend

    def __call__(self, x: Tensor) -> Tensor:
        y = self._product(x).contiguous()
        dist.all_reduce(y)
        return y


class _Gathered:
    """A product whose outputs are divided: the ranks' results follow one another."""

    def __init__(self, product: LinearMap, ways: int) -> None:
        self._product, self._ways = product, ways
        self.backend = product.backend

    def __call__(self, x: Tensor) -> Tensor:
        part = self._product(x).contiguous()
        parts = [torch.empty_like(part) for _ in range(self._ways)]
        dist.all_gather(parts, part)
        return torch.cat(parts, 1)
