"""Number formats: what a weight weighs, what its products compute in, what quality it costs."""

from dataclasses import dataclass
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


_GROUPED_INT4_BYTES = grouped_bytes(4, 128, zero_bits=16)
_LLM_INT8_BYTES = 0.99 * 1 + 0.01 * 2
"""One column in a hundred in fp16, the most that outliers take."""
_LLM_INT8_MEMORY_SHARE = 239 / 282 / 2
"""BLOOM-176B, batch 1: 239 ms per token in bf16, 282 ms with half the bytes (Belkada 2022)."""

_FORMATS = (
    Format("fp32", 4, "fp32", 1, 32, True, "IEEE 754", "fp32", activation_bits=32),
    Format("bf16", 2, "bf16", 1, 16, True, "IEEE 754-like; the reference here", "bf16"),
    Format("fp8", 1, "fp8", 1, 8, False,
           "Micikevicius 2022 (E4M3, or E5M2: bf8); twice the bf16 peak by the H100 data sheet",
           "fp8", activation_bits=8),
    Format("w8a8", 1, "int8", 1, 8, False,
           "SmoothQuant (Xiao 2022): static, outliers moved from activations to weights",
           "int8", activation_bits=8, calibration="data"),
    Format("llm-int8", _LLM_INT8_BYTES, "int8", 0.5, 8.1, False,
           "LLM.int8 (Dettmers 2022): outlier columns in fp16; speed of decoding by Belkada 2022",
           "int8", activation_bits=8, memory_share=_LLM_INT8_MEMORY_SHARE),
    Format("int8", 1, "bf16", 0.95, 8, False,
           "weight-only, a scale per output, dequantised in the product; share assumed", "int8"),
    Format("int4", _GROUPED_INT4_BYTES, "bf16", 0.9, 4, False,
           "GPTQ (Frantar 2022), an fp16 scale and zero per 128 weights; share assumed (0.8 to 1)",
           "int4", calibration="data"),
    Format("awq", _GROUPED_INT4_BYTES, "bf16", 0.9, 4.5, False,
           "AWQ (Lin 2023): int4 as above, salient channels scaled up before rounding",
           "awq", calibration="data"),
)  # fmt: skip
FORMATS = {format.name: format for format in _FORMATS}
BF16 = FORMATS["bf16"]

KV_FORMATS = {"fp32": 4.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0 + 4 / 128}
"""Bytes per element of keys and values; int8 with an fp32 scale per head of 128."""


def find_format(name: str) -> Format:
    """Return a format by name.

    Raises ``PolicyError`` with the nearest known name.
    """
    if name not in FORMATS:
        hint = did_you_mean(name, FORMATS, f"known are {', '.join(FORMATS)}")
        raise PolicyError(f"format: unknown {name!r}; {hint}")
    return FORMATS[name]
