"""Products with weights in few bits on a GPU: in one launch, which restores no matrix."""

import torch.nn.functional as F
from torch import Tensor

from servetwin.engine.formats.rounded_weights import Int4Weight, Int8Weight, QuantisedProduct
from servetwin.engine.kernels.decode_attention import power_of_two
from servetwin.engine.kernels.programs.products import multiply_codes

# Rows of a program; outputs, and inputs at a time.
_MOST_ROWS, _TILE = 64, 64


class TritonProduct(QuantisedProduct):
    """int8 or int4 weights, widened inside the product; int4 lies two codes to a byte."""

    backend = "triton"

    def __init__(self, weight: Int8Weight | Int4Weight) -> None:
        super().__init__(weight)
        self._codes, self._scales, self._shape = weight.codes, weight.scales, weight.codes.shape
        self._middles: Tensor | None = None
        self._group = self._shape[1]
        if isinstance(weight, Int4Weight):
            even = F.pad(weight.codes, (0, self._shape[1] % 2))
            self._codes = even[:, ::2] | even[:, 1::2] << 4
            self._middles, self._group = weight.middles, weight.group

    def __call__(self, x: Tensor) -> Tensor:
        """Map [rows, input size] to [rows, output size]."""
        rows, (outputs, inputs) = len(x), self._shape
        y = x.new_empty((rows, outputs))
        tile_rows = min(power_of_two(rows), _MOST_ROWS)
        if rows:
            multiply_codes[-(-outputs // _TILE), -(-rows // tile_rows)](
                x, self._codes, self._scales, self._middles, y, rows, outputs, inputs,
                x.stride(0), self._codes.stride(0), -(-inputs // self._group), self._group,
                INT4=self._middles is not None, TILE_ROWS=tile_rows, TILE=_TILE,
            )  # fmt: skip
        return y
