"""Number formats: what a weight weighs, what its products compute in, what noise it has.

The noise of rounding is a signal over noise in dB, or in bits, by formula: the weights are normal
numbers. A grid of integers has steps of S = range / (2^b - 1), where the range is that of ``group``
weights: from the lowest to the highest (``affine``), or twice the largest magnitude (``integer``);
its noise is S^2 / 12. A float of m mantissa bits has steps in proportion to each weight. No format
of R bits a weight has more than 6.02 R dB (the rate-distortion bound). Calibration and training
make the outputs better than this noise of the weights says.
"""

from dataclasses import dataclass, replace
from functools import cache
from math import erf, log10, pi, sqrt
from typing import Any, Literal

import numpy as np

from servetwin.sim.catalogue.hardware import Hardware, Precision
from servetwin.sim.catalogue.quantisation import WeightFormat
from servetwin.workloads.errors import PolicyError, did_you_mean
from servetwin.workloads.program.package import shipped_json

DB_PER_BIT = 20 * log10(2)
_MOST = 8.0
_STEPS = 800
_OCTAVES = 40


@dataclass(frozen=True, slots=True)
class Grid:
    """Numbers that weights are rounded to: ``bits`` of integers, or of the mantissa of floats."""

    kind: Literal["integer", "affine", "float"]
    bits: int
    group: int = 0


def sqnr_db(grid: Grid) -> float:
    """Return the power of the weights over that of the noise, in dB.

    The noise within a step is taken as uniform: right within 0.3 dB from 3 bits on, and within
    0.6 dB for 2.
    """
    if grid.kind == "float":
        return -10 * log10(_squared_steps() / 4**grid.bits / 12)
    square = (_range_squared if grid.kind == "affine" else _twice_peak_squared)(grid.group)
    return 10 * log10(12 * (2**grid.bits - 1) ** 2 / square)


def most_sqnr_db(bits_per_weight: float) -> float:
    """Return the bound that no format of these bits a weight exceeds."""
    return DB_PER_BIT * bits_per_weight


def noise_bits(grid: Grid) -> float:
    """Return the signal over the noise in bits: the correct bits of a weight."""
    return sqnr_db(grid) / DB_PER_BIT


@cache
def _squared_steps() -> float:
    """Return the mean square of the power of two at or below the magnitude of a normal number."""
    octaves = range(-_OCTAVES, _OCTAVES)
    return sum(4.0**e * (_within(2.0 ** (e + 1)) - _within(2.0**e)) for e in octaves)


@cache
def _twice_peak_squared(group: int) -> float:
    """Return the mean square of twice the largest magnitude of ``group`` normal numbers."""
    step = _MOST / _STEPS
    magnitudes = step * (np.arange(_STEPS) + 0.5)
    below = np.array([_within(x) for x in magnitudes]) ** group
    return 4 * float((2 * magnitudes * (1 - below)).sum() * step)


@cache
def _range_squared(group: int) -> float:
    """Return the mean square of the range of ``group`` normal numbers."""
    step = 2 * _MOST / _STEPS
    lowest = step * np.arange(_STEPS) - _MOST
    density = np.exp(-(lowest**2) / 2) / sqrt(2 * pi)
    below = np.array([(1 + erf(x / sqrt(2))) / 2 for x in lowest])
    square = 0.0
    for shift in range(_STEPS):
        highest = np.concatenate([below[shift:], np.ones(shift)])
        within = group * float((density * (highest - below) ** (group - 1)).sum()) * step
        square += 2 * shift * step * (1 - within) * step
    return square


def _within(magnitude: float) -> float:
    """Return the share of normal numbers of a smaller magnitude."""
    return erf(magnitude / sqrt(2))


ACTIVATION_BYTES = 2


@dataclass(frozen=True, slots=True)
class Format:
    """A format of weights and products.

    ``weight_bytes`` that a product reads per weight, group scales included; ``stored_bytes`` in
    memory, where that differs; formats of the same ``stored_as`` share one copy of the weights.
    ``compute`` is the precision of the products, ``compute_share`` what remains of its peak
    (dequantisation, decomposition; above 1 where a sparse product skips multiplications) and
    ``memory_share`` what remains of the bandwidth at which weights are read.

    ``activation_bits`` enter the products. ``activation_scales`` are chosen beforehand (static), or
    per token as it is computed (dynamic); then every activation that enters a product moves
    ``scaling_bytes`` more, unless measured times have that already. ``calibration``: what it takes
    to make one, "data" being some prompts (post-training), "training" more training with the format
    in mind (QAT). ``grid``: what weights are rounded to, where a
    formula gives the noise; codebooks and sparse weights have none.
    """

    name: str
    weight_bytes: float
    compute: Precision
    compute_share: float
    lossless: bool
    source: str
    stored_as: str
    activation_bits: int = 16
    activation_scales: Literal["none", "static", "dynamic"] = "none"
    scaling_bytes: float = 0.0
    calibration: Literal["none", "data", "training"] = "none"
    memory_share: float = 1.0
    stored_bytes: float | None = None
    grid: Grid | None = None

    @property
    def bytes_in_memory(self) -> float:
        """Per weight."""
        return self.weight_bytes if self.stored_bytes is None else self.stored_bytes


def grouped_bytes(bits: float, group: int, scale_bits: int = 16, zero_bits: int = 0) -> float:
    """Return the bytes of a weight whose ``group`` shares a scale, and maybe a zero point."""
    return (bits + (scale_bits + zero_bits) / group) / 8


def with_dynamic_scales(form: Format) -> Format:
    """Return a format that chooses the scales of its activations per token, from no data.

    Choosing reads an activation in 2 bytes and writes it in those of the format.
    """
    moved = ACTIVATION_BYTES + form.activation_bits / 8
    return replace(form, activation_scales="dynamic", calibration="none", scaling_bytes=moved)


def stored_weight_bytes(prefill: Format, decode: Format) -> float:
    """Return the bytes of a weight in memory for both phases: one copy if they store it alike."""
    sizes = prefill.bytes_in_memory, decode.bytes_in_memory
    return max(sizes) if prefill.stored_as == decode.stored_as else sum(sizes)


def _read(entry: dict[str, Any]) -> Format:
    grid = entry.pop("grid", None)
    return Format(**entry, grid=Grid(**grid) if grid else None)


_FILE = shipped_json("sim/step_times/roofline/formats.json")
# The formats by name. ``int4`` weighs ``grouped_bytes(4, 128, zero_bits=16)``; ``gptq`` and ``awq``
# have zeros of 4 bits; those from ``q8_0`` on are the blocks of GGUF (llama.cpp). ``llm-int8`` has
# one column in a hundred in fp16, the most that outliers take, and the bandwidth of BLOOM-176B at
# batch 1: 239 ms per token in bf16, 282 ms with half the bytes (Belkada 2022).
FORMATS: dict[str, Format] = {entry["name"]: _read(entry) for entry in _FILE["weights"]}
BF16 = FORMATS["bf16"]
# The formats of published weights, by their ``WeightFormat``.
CHECKPOINTS: dict[str, Format] = {
    "bf16": BF16,
    "fp8": FORMATS["fp8"],
    "int8": FORMATS["w8a8"],
    "w4a16": FORMATS["gptq"],
} | {entry["name"]: _read(entry) for entry in _FILE["checkpoints"]}
# The formats of GGUF, which llama.cpp reads.
BLOCK_FORMATS = tuple(name for name, form in FORMATS.items() if form.source.startswith("GGUF"))

# Bytes per element of keys and values.
# ``fp8`` is E4M3 with a scale per tensor, ``bf8`` E5M2 without one. ``int8`` has an fp32 scale per
# head of 128, ``int4`` an fp16 scale and zero per head of 128; ``q8_0`` and ``q4_0`` are blocks of
# GGUF.
KV_FORMATS: dict[str, float] = _FILE["keys_and_values"]


# What remains of the bf16 peak where weights are turned to bf16 inside the product; assumed.
_DEQUANTISED_SHARE = 0.9


def on_device(form: WeightFormat, hardware: Hardware) -> Format:
    """Return the format of published weights as the device runs them.

    Without such products, the weights are turned to bf16. Raises ``PolicyError`` where no kernel of
    the device does that, with the formats that it runs.
    """
    known = CHECKPOINTS[form]
    if form == "bf16" or (known.compute != "bf16" and known.compute in hardware.peak_flops_per_s):
        return known
    if form not in hardware.weight_only:
        peaks = hardware.peak_flops_per_s
        others = ("w4a16", "w4a16-g32", "mxfp4")  # they compute in bf16, but not without kernels
        there = (n for n, one in CHECKPOINTS.items() if one.compute in peaks and n not in others)
        runs = dict.fromkeys((*there, *hardware.weight_only))
        raise PolicyError(
            f"{hardware.name} runs no {form} weights; take a checkpoint in {', '.join(runs)}"
        )
    if known.compute == "bf16":
        return known
    return replace(
        known, name=f"{form} weights", compute="bf16", compute_share=_DEQUANTISED_SHARE,
        activation_bits=16, activation_scales="none", scaling_bytes=0.0,
    )  # fmt: skip


def find_format(name: str) -> Format:
    """Return a format by name.

    Raises ``PolicyError`` with the nearest known name.
    """
    if name not in FORMATS:
        raise PolicyError(f"format: unknown {name!r}; {did_you_mean(name.lower(), FORMATS)}")
    return FORMATS[name]
