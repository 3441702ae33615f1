"""The small operators of a decoder by kernels of Triton: one launch each."""

from torch import Tensor

from servetwin.engine.kernels.decode_attention import power_of_two
from servetwin.engine.kernels.programs.operators import gate_rows, norm_rows, rotate_heads
from servetwin.engine.models.operators import Operators

_HEADS_OF_A_PROGRAM, _GATED_OF_A_PROGRAM = 8, 1024


class TritonOperators(Operators):
    """Operators whose rows are contiguous; heads may be a part of a fused product."""

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Return the norm of the last axis, by one row of weights or by one for each head."""
        return _norm(x, None, weight, eps)[1]

    def add_norm(
        self, x: Tensor, delta: Tensor | None, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """Return ``x + delta`` (None: nothing is added) and its norm."""
        return _norm(x, delta, weight, eps)

    def rotate(self, heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return ``heads`` [rows, heads, width] turned by their positions."""
        rows, count, width = heads.shape
        rotated = heads.new_empty(heads.shape)
        if rows:
            rotate_heads[rows, -(-count // _HEADS_OF_A_PROGRAM)](
                heads, cos, sin, rotated, heads.stride(0), heads.stride(1), count,
                HALF=width // 2, TILE_HALF=power_of_two(width // 2),
                TILE_HEADS=_HEADS_OF_A_PROGRAM,
            )  # fmt: skip
        return rotated

    def swiglu(self, gate_up: Tensor) -> Tensor:
        """Return ``silu(gate) * up`` for [rows, gate and up]."""
        rows, width = gate_up.shape[0], gate_up.shape[1] // 2
        gated = gate_up.new_empty((rows, width))
        if rows:
            parts = -(-width // _GATED_OF_A_PROGRAM)
            gate_rows[rows, parts](gate_up, gated, width, TILE=_GATED_OF_A_PROGRAM)
        return gated


def _norm(x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return the sum and its norm, for [rows, width] or [rows, heads, width]."""
    width = x.shape[-1]
    heads = x.shape[1] if x.dim() == 3 else 1
    normed = x.new_empty(x.shape)
    total = x if delta is None else x.new_empty(x.shape)
    if x.shape[0]:
        norm_rows[(x.shape[0] * heads,)](
            x, delta, weight, total, normed, x.stride(0), x.stride(1) if heads > 1 else 0,
            0 if delta is None else delta.stride(0), heads, weight.numel() // width, eps,
            ADDED=delta is not None, WIDTH=width, TILE=power_of_two(width),
        )  # fmt: skip
    return total, normed
