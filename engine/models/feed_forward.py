"""The gated feed-forward network of a layer: SwiGLU (Shazeer 2020, arXiv 2002.05202)."""

import torch.nn.functional as F
from torch import Tensor

from engine.models.linear import MakeLinear
from engine.models.weights import FeedForwardWeights


class FeedForward:
    """``down(silu(gate(x)) * up(x))``, with gate and up as one product."""

    def __init__(self, weights: FeedForwardWeights, make_linear: MakeLinear) -> None:
        self._gate_up = make_linear("gate_up", weights.gate_up)
        self._down = make_linear("down", weights.down)
        self._gate_up_bias, self._down_bias = weights.gate_up_bias, weights.down_bias

    def __call__(self, x: Tensor) -> Tensor:
        """Map [rows, hidden size] to the same shape."""
        gate_up = self._gate_up(x)
        if self._gate_up_bias is not None:
            gate_up = gate_up + self._gate_up_bias
        gate, up = gate_up.chunk(2, 1)
        down = self._down(F.silu(gate).mul_(up))
        return down if self._down_bias is None else down + self._down_bias
