"""The small operators between matrix products, in plain torch; a device may have its own."""

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from servetwin.engine.models.rotary import rotate


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Divide each row of the last axis by its root mean square, in float32; multiply by
    ``weight``: one row, or one row for each head of [rows, heads, head dim].
    """
    wide = x.float()
    scale = torch.rsqrt((wide * wide).mean(-1, keepdim=True) + eps)
    return (wide * scale).to(x.dtype) * weight


class Operators(Protocol):
    """What a decoder computes beside its matrix products and its attention."""

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Return ``norms.rms_norm``."""

    def add_norm(
        self, x: Tensor, delta: Tensor | None, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """Return ``x + delta`` (None: nothing is added) and its norm."""

    def rotate(self, heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return ``rotary.rotate``."""

    def swiglu(self, gate_up: Tensor) -> Tensor:
        """Return ``silu(gate) * up`` for [rows, gate and up]."""


class PlainOperators:
    """Operators of torch. On a CPU these calls are faster than torch's own fused norm."""

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Return ``norms.rms_norm``."""
        return rms_norm(x, weight, eps)

    def add_norm(
        self, x: Tensor, delta: Tensor | None, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """Return ``x + delta`` (None: nothing is added) and its norm."""
        if delta is not None:
            x = x + delta
        return x, rms_norm(x, weight, eps)

    def rotate(self, heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return ``rotary.rotate``."""
        return rotate(heads, cos, sin)

    def swiglu(self, gate_up: Tensor) -> Tensor:
        """Return ``silu(gate) * up`` for [rows, gate and up]."""
        gate, up = gate_up.chunk(2, 1)
        return F.silu(gate).mul_(up)


PLAIN: Operators = PlainOperators()
