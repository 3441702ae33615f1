"""Root mean square norms (arXiv 1910.07467)."""

import torch
import torch.nn.functional as F
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Divide each row of the last axis by its root mean square, in float32; multiply by
    ``weight``: one row, or one row for each head of [rows, heads, head dim].
    """
    if x.is_cuda and weight.dim() == 1:  # one kernel there; on the CPU these five calls are faster
        return F.rms_norm(x, weight.shape, weight, eps)
    wide = x.float()
    scale = torch.rsqrt((wide * wide).mean(-1, keepdim=True) + eps)
    return (wide * scale).to(x.dtype) * weight
