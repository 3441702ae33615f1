"""The small operators between matrix products, in plain torch; a device may have its own."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from servetwin.engine.models.model_config import Activation
from servetwin.engine.models.rotary import rotate

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "gelu": F.gelu,
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),
}
# x sigmoid(1.702 x) is near gelu(x) (Hendrycks 2016, arXiv 1606.08415).
_GATE_GAIN = 1.702


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

    def layer_norm(self, x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
        """Normalise each row to mean 0 and deviation 1, in float32; multiply by ``weight``."""
        wide = None if bias is None else bias.float()
        return F.layer_norm(x.float(), weight.shape, weight.float(), wide, eps).to(x.dtype)

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


def gated(activate: Callable[[Tensor], Tensor], gate_up: Tensor) -> Tensor:
    """Return ``activate(gate) * up`` for [rows, gate and up]."""
    gate, up = gate_up.chunk(2, 1)
    return activate(gate) * up


def limited_gate(gate_up: Tensor, limit: float) -> Tensor:
    """Gate as gpt-oss does: both parts end at ``limit``, and the up part counts from -1."""
    gate, up = gate_up.chunk(2, 1)
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return (up + 1) * gate * torch.sigmoid(gate * _GATE_GAIN)


PLAIN = Operators()
