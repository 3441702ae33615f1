"""Root mean square norms (arXiv 1910.07467)."""

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Divide each row of the last axis by its root mean square, in float32; multiply by
    ``weight``: one row, or one row for each head of [rows, heads, head dim].
    """
    wide = x.float()
    scale = torch.rsqrt((wide * wide).mean(-1, keepdim=True) + eps)
    return (wide * scale).to(x.dtype) * weight
