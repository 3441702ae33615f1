"""Figures of compression and frameworks (items 1.3): grids, distillation, experts, weights."""

from collections.abc import Iterator

import numpy as np

from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.catalogue.layers import Experts
from servetwin.sim.step_times.roofline.formats import grouped_bytes
from tests.support.formulas.affine_grid import AffineGrid
from tests.support.formulas.distillation import distillation_loss
from tests.support.published.claim import Claim

_WEIGHTS_GB = {
    1.5: "1.263", 2: "1.685", 3: "2.527", 4: "3.369", 5: "4.211", 6: "5.054", 8: "6.738",
    16: "13.476",
}  # fmt: skip


def affine_quantisation() -> Iterator[Claim]:
    """Yield the grid of int8 codes over numbers from -1 to 3."""
    grid = AffineGrid.over(-1, 3)
    yield Claim("scale S", "0.0156862745", grid.scale)
    yield Claim("zero point Z, as printed", "190.75", grid.zero_point, "E8")
    yield Claim("zero point Z, corrected", "-64.25", grid.zero_point)
    yield Claim("worst error S / 2", "0.0078431", grid.worst_error)
    codes = grid.quantise(np.array([-1.0, 3.0]))
    yield Claim("code of the smallest number", "127", float(codes[0]), "E8")
    yield Claim("code of the largest number", "127", float(codes[1]))


def distillation() -> Iterator[Claim]:
    """Yield the loss of a student for one token of three."""
    teacher, softened, student = (
        np.array(shares) for shares in ([0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.5, 0.3, 0.2])
    )
    label = np.array([1.0, 0.0, 0.0])
    loss = distillation_loss(teacher, softened, student, label, 0.7)
    yield Claim("a L_soft + (1 - a) L_hard, a = 0.7", "0.7879859", loss)
    yield Claim("indices that the hard loss sums over", "i and j", "i", "E14")


def experts() -> Iterator[Claim]:
    """Yield the weights of Mixtral 8x7B, and the experts that a step touches."""
    model = find_model("mixtral-8x7b")
    ffn = model.layers[0].ffn
    assert isinstance(ffn, Experts)
    yield Claim("weights", "46.70e9", model.params())
    yield Claim("active weights", "12.88e9", model.active_params())
    yield Claim("weights of an expert in a layer", "176160768", ffn.expert_params(model.width))
    touched = {1: "2", 2: "3.5", 4: "5.46875", 8: "7.1991", 16: "7.9198"}
    for tokens, printed in touched.items():
        yield Claim(f"experts touched by {tokens} tokens", printed, ffn.touched_experts(tokens))


def framework_weights() -> Iterator[Claim]:
    """Yield the weights of Llama-2-7B in the formats of llama.cpp, without scales."""
    params = find_model("llama-2-7b").params()
    for bits, printed in _WEIGHTS_GB.items():
        yield Claim(f"Llama-2-7B in {bits:g} bits, GB", printed, params * bits / 8 / 1e9)
    yield Claim("q4_0 with its scales, bits a weight", "4.5", 8 * grouped_bytes(4, 32))
    yield Claim("q4_0 as named, bits a weight", "4.0", 8 * grouped_bytes(4, 32), _SCALES)


_SCALES = "32 weights share a scale of 16 bits: 18 bytes"
