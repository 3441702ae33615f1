"""Products with weights in few bits, as a Triton program: a code is widened where it is used."""

import triton
import triton.language as tl


@triton.jit
def multiply_codes(
    x, codes, scales, middles, y, rows, outputs, inputs, x_row, codes_row, groups, group,
    INT4: tl.constexpr, TILE_ROWS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Multiply some rows with the weights of some outputs: codes of int8 with a scale an output,
    or pairs of int4 in a byte, with a scale and a middle for each group of inputs.
    """
    output = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    row = tl.program_id(1).to(tl.int64) * TILE_ROWS + tl.arange(0, TILE_ROWS)
    total = tl.zeros([TILE_ROWS, TILE], tl.float32)
    for first in range(0, inputs, TILE):
        at = first + tl.arange(0, TILE)
        there = (at < inputs)[:, None] & (output < outputs)[None]
        if INT4:
            place = output[None] * codes_row + (at // 2)[:, None]
            code = (tl.load(codes + place, there, 0).to(tl.int32) >> (at % 2 * 4)[:, None]) & 15
            of_group = output[None] * groups + (at // group)[:, None]
            scale = tl.load(scales + of_group, there, 0.0).to(tl.float32)
            middle = tl.load(middles + of_group, there, 0.0).to(tl.float32)
            weight = (code.to(tl.float32) - 8.0) * scale + middle
        else:
            weight = tl.load(codes + output[None] * codes_row + at[:, None], there, 0)
        inside = (row < rows)[:, None] & (at < inputs)[None]
        own = tl.load(x + row[:, None] * x_row + at[None], inside, 0.0)
        total += tl.dot(own, weight.to(own.dtype), input_precision="ieee")
    if not INT4:
        total *= tl.load(scales + output, output < outputs, 0.0)[None]
    written = (row < rows)[:, None] & (output < outputs)[None]
    tl.store(y + row[:, None] * outputs + output[None], total, written)
