"""Number formats: what a weight weighs, what its products compute in, what quality it costs."""

import json
from dataclasses import dataclass
from importlib import resources
from typing import Literal

from sim.shapes.hardware import Precision
from workloads.errors import PolicyError, did_you_mean


@dataclass(frozen=True, slots=True)
class Format:
    """A format of weights and products.

    ``weight_bytes`` that a product reads per weight, group scales included; ``stored_bytes`` in
    memory, where that differs; formats of the same ``stored_as`` share one copy of the weights.
    ``compute`` is the precision of the products, ``compute_share`` what remains of its peak
    (dequantisation, decomposition; above 1 where a sparse product skips multiplications) and
    ``memory_share`` what remains of the bandwidth at which weights are read.

    ``activation_bits`` enter the products. ``calibration``: what it takes to make one, "data" being
    some prompts (post-training); training with the format in mind (QAT) yields the same format.
    ``quality_bits`` orders formats by what they keep: fewer bits never cost less quality; the
    penalty itself has to be measured on the task at hand, and is never computed here.
    """

    name: str
    weight_bytes: float
    compute: Precision
    compute_share: float
    quality_bits: float
    lossless: bool
    source: str
    stored_as: str
    activation_bits: int = 16
    calibration: Literal["none", "data"] = "none"
    memory_share: float = 1.0
    stored_bytes: float | None = None

    @property
    def bytes_in_memory(self) -> float:
        """Per weight."""
        return self.weight_bytes if self.stored_bytes is None else self.stored_bytes


def grouped_bytes(bits: float, group: int, scale_bits: int = 16, zero_bits: int = 0) -> float:
    """Return the bytes of a weight whose ``group`` shares a scale, and maybe a zero point."""
    return (bits + (scale_bits + zero_bits) / group) / 8


def stored_weight_bytes(prefill: Format, decode: Format) -> float:
    """Return the bytes of a weight in memory for both phases: one copy if they store it alike."""
    sizes = prefill.bytes_in_memory, decode.bytes_in_memory
    return max(sizes) if prefill.stored_as == decode.stored_as else sum(sizes)


_FILE = resources.files("sim").joinpath("step_times/roofline/formats.json")
FORMATS: dict[str, Format] = {
    entry["name"]: Format(**entry) for entry in json.loads(_FILE.read_text("utf-8"))
}
"""By name. ``int4`` and ``awq`` weigh ``grouped_bytes(4, 128, zero_bits=16)``.

``llm-int8`` has one column in a hundred in fp16, the most that outliers take, and the bandwidth of
BLOOM-176B at batch 1: 239 ms per token in bf16, 282 ms with half the bytes (Belkada 2022).
"""
BF16 = FORMATS["bf16"]

KV_FORMATS = {"fp32": 4.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0 + 4 / 128}
"""Bytes per element of keys and values; int8 with an fp32 scale per head of 128."""


def find_format(name: str) -> Format:
    """Return a format by name.

    Raises ``PolicyError`` with the nearest known name.
    """
    if name not in FORMATS:
        raise PolicyError(f"format: unknown {name!r}; {did_you_mean(name, FORMATS)}")
    return FORMATS[name]
