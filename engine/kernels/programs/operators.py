"""The small operators of a decoder, each one launch, as Triton programs.

They compute in float32, and round where the calls of torch would.
"""

import triton
import triton.language as tl


@triton.jit
def norm_rows(
    x, delta, weight, total, normed, x_row, x_head, delta_row, heads, weight_rows, eps,
    ADDED: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Divide a row of each head by its root mean square, after an addition that is kept."""
    place = tl.program_id(0).to(tl.int64)
    row, head = place // heads, place % heads
    at = tl.arange(0, TILE)
    there = at < WIDTH
    wide = tl.load(x + row * x_row + head * x_head + at, there, 0.0).to(tl.float32)
    if ADDED:
        wide += tl.load(delta + row * delta_row + at, there, 0.0).to(tl.float32)
        wide = wide.to(x.dtype.element_ty).to(tl.float32)
        tl.store(total + place * WIDTH + at, wide, there)
    scale = tl.rsqrt(tl.sum(wide * wide, 0) / WIDTH + eps)
    factor = tl.load(weight + (head % weight_rows) * WIDTH + at, there, 0.0).to(tl.float32)
    rounded = (wide * scale).to(x.dtype.element_ty).to(tl.float32)
    tl.store(normed + place * WIDTH + at, rounded * factor, there)


@triton.jit
def rotate_heads(
    heads, cos, sin, rotated, heads_row, heads_head, count,
    HALF: tl.constexpr, TILE_HALF: tl.constexpr, TILE_HEADS: tl.constexpr,
):  # fmt: skip
    """Turn pairs of elements, half a head apart, of some heads of one row."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * TILE_HEADS + tl.arange(0, TILE_HEADS)
    at = tl.arange(0, TILE_HALF)
    there = (head < count)[:, None] & (at < HALF)[None]
    first = row * heads_row + head[:, None] * heads_head + at[None]
    left = tl.load(heads + first, there, 0.0).to(tl.float32)
    right = tl.load(heads + first + HALF, there, 0.0).to(tl.float32)
    angle = row * 2 * HALF + at
    inside = at < HALF
    cos_left = tl.load(cos + angle, inside, 0.0)[None].to(tl.float32)
    cos_right = tl.load(cos + angle + HALF, inside, 0.0)[None].to(tl.float32)
    sin_left = tl.load(sin + angle, inside, 0.0)[None].to(tl.float32)
    sin_right = tl.load(sin + angle + HALF, inside, 0.0)[None].to(tl.float32)
    out = (row * count + head[:, None]) * 2 * HALF + at[None]
    tl.store(rotated + out, left * cos_left + right * sin_left, there)
    tl.store(rotated + out + HALF, right * cos_right + left * sin_right, there)


@triton.jit
def gate_rows(gate_up, gated, width, TILE: tl.constexpr):
    """Multiply a part of a row's up projection by the SiLU of its gate."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * TILE + tl.arange(0, TILE)
    there = at < width
    gate = tl.load(gate_up + row * 2 * width + at, there, 0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * width + width + at, there, 0.0).to(tl.float32)
    opened = (gate / (1.0 + tl.exp(-gate))).to(gate_up.dtype.element_ty).to(tl.float32)
    tl.store(gated + row * width + at, opened * up, there)
