"""The small operators between matrix products, in plain torch; a device may have its own."""

import torch
import torch.nn.functional as F
from torch import Tensor

from servetwin.engine.models.rotary import rotate


class Operators:
    """What a decoder computes beside its matrix products and its attention, in plain torch.

    A device may have its own. On a CPU these calls are faster than torch's own fused norm.
    """

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Divide each row of the last axis by its root mean square, in float32; multiply by
        ``weight``: one row, or one row for each head of [rows, heads, head dim].
        """
        wide = x.float()
        scale = torch.rsqrt((wide * wide).mean(-1, keepdim=True) + eps)
        return (wide * scale).to(x.dtype) * weight

    def layer_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Normalise each row to mean 0 and deviation 1, in float32; multiply by ``weight``."""
        return F.layer_norm(x.float(), weight.shape, weight.float(), None, eps).to(x.dtype)

    def add_norm(
        self, x: Tensor, delta: Tensor | None, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """Return ``x + delta`` (None: nothing is added) and its norm."""
        if delta is not None:
            x = x + delta
        return x, self.rms_norm(x, weight, eps)

    def rotate(self, heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Turn [rows, heads, width] by position; element i pairs with i + width / 2."""
        return rotate(heads, cos, sin)

    def swiglu(self, gate_up: Tensor) -> Tensor:
        """Return ``silu(gate) * up`` for [rows, gate and up]."""
        gate, up = gate_up.chunk(2, 1)
        return F.silu(gate).mul_(up)

    def geglu(self, gate_up: Tensor) -> Tensor:
        """Return ``gelu(gate) * up`` for [rows, gate and up], with the tanh of Gemma."""
        gate, up = gate_up.chunk(2, 1)
        return F.gelu(gate, approximate="tanh").mul_(up)


PLAIN = Operators()
