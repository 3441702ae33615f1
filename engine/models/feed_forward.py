"""The gated feed-forward network of a layer: SwiGLU (Shazeer 2020, arXiv 2002.05202)."""

from torch import Tensor

from servetwin.engine.models.linear import MakeLinear
from servetwin.engine.models.operators import PLAIN, Operators
from servetwin.engine.models.weights import FeedForwardWeights


class FeedForward:
    """``down(silu(gate(x)) * up(x))``, with gate and up as one product."""

    def __init__(
        self,
        weights: FeedForwardWeights,
        make_linear: MakeLinear,
        operators: Operators = PLAIN,
    ) -> None:
        self._operators = operators
        self._gate_up = make_linear("gate_up", weights.gate_up)
        self._down = make_linear("down", weights.down)
        self._gate_up_bias, self._down_bias = weights.gate_up_bias, weights.down_bias

    def __call__(self, x: Tensor) -> Tensor:
        """Map [rows, hidden size] to the same shape."""
        gate_up = self._gate_up(x)
        if self._gate_up_bias is not None:
            gate_up = gate_up + self._gate_up_bias
        down = self._down(self._operators.swiglu(gate_up))
        return down if self._down_bias is None else down + self._down_bias
