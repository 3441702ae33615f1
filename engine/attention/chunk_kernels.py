"""How chunks of prompts attend on a device: chosen once, when the store is made."""

from typing import Protocol

import torch
from torch import Tensor


class ChunkKernel(Protocol):
    """What differs between devices in the attention of a chunk."""

    def causal(self, rows: int, before: int, dtype: torch.dtype) -> Tensor:
        """Return the mask of rows that see ``before`` keys and those up to their own."""

    def repeat(self, heads: Tensor, group: int) -> Tensor:
        """Return [kv heads, 1, keys, width] for each of the ``group`` query heads of a key head."""


class HostChunks:
    """On a CPU a mask is numbers to add, and heads are repeated without a copy."""

    def causal(self, rows: int, before: int, dtype: torch.dtype) -> Tensor:
        """Return the mask of rows that see ``before`` keys and those up to their own."""
        return additive_mask(
            torch.ones(rows, before + rows, dtype=torch.bool).triu(before + 1), dtype
        )

    def repeat(self, heads: Tensor, group: int) -> Tensor:
        """Return [kv heads, 1, keys, width] for each of the ``group`` query heads of a key head."""
        return heads.expand(-1, group, -1, -1)


class DeviceChunks:
    """On CUDA the fused kernels know a causal mask that ends at the last key, and read heads that
    are contiguous; numbers to add would be read from memory, and keep them from the fastest one.
    """

    def causal(self, rows: int, before: int, dtype: torch.dtype) -> Tensor:
        """Return the mask of rows that see ``before`` keys and those up to their own."""
        from torch.nn.attention.bias import causal_lower_right  # brings torch's compiler: seconds

        mask: Tensor = causal_lower_right(rows, before + rows)
        return mask

    def repeat(self, heads: Tensor, group: int) -> Tensor:
        """Return [kv heads, 1, keys, width] for each of the ``group`` query heads of a key head."""
        return heads.expand(-1, group, -1, -1).contiguous()


def chunk_kernel(device: torch.device) -> ChunkKernel:
    """Return how chunks attend on ``device``."""
    return DeviceChunks() if device.type == "cuda" else HostChunks()


def additive_mask(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a boolean mask (True: hidden) as numbers to add to the scores."""
    return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(
        hidden, -torch.inf
    )
