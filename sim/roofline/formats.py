"""Number formats: what a weight weighs, what its products compute in, what quality it costs."""

from dataclasses import dataclass

from sim.shapes.hardware import Precision
from workloads.errors import PolicyError, did_you_mean


@dataclass(frozen=True, slots=True)
class Format:
    """A format of weights and products.

    ``weight_bytes`` per weight, group scales included; ``compute`` the precision of the products;
    ``compute_share`` what remains of that precision's peak (decomposition, dequantisation).
    ``quality_bits`` orders formats by what they keep: fewer bits never cost less quality; the
    penalty itself is an input to be measured on one's own task, never computed here.
    """

    name: str
    weight_bytes: float
    compute: Precision
    compute_share: float
    quality_bits: float
    lossless: bool
    source: str


_FORMATS = (
    Format("fp32", 4, "fp32", 1, 32, True, "IEEE 754"),
    Format("bf16", 2, "bf16", 1, 16, True, "IEEE 754-like; the reference here"),
    Format("fp8", 1, "fp8", 1, 8, False, "Micikevicius 2022; H100 data sheet"),
    Format("w8a8", 1, "int8", 1, 8, False, "SmoothQuant (Xiao 2022): static W8A8"),
    Format("llm-int8", 1.01, "bf16", 0.82, 8.1, False,
           "LLM.int8 (Dettmers 2022): outlier columns in fp16, 15 to 23 % slower than fp16"),
    Format("int8", 1, "bf16", 0.95, 8, False, "weight-only int8, dequantised inside the product"),
    Format("int4", 0.53, "bf16", 0.9, 4, False,
           "weight-only int4 (GPTQ, Frantar 2022), fp16 scales per 128 weights"),
    Format("awq", 0.54, "bf16", 0.9, 4.5, False,
           "AWQ (Lin 2023): int4 per 128 weights, up to 1 % salient weights kept"),
)  # fmt: skip
FORMATS = {format.name: format for format in _FORMATS}
BF16 = FORMATS["bf16"]

KV_FORMATS = {"fp32": 4.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0 + 4 / 128}
"""Bytes per element of keys and values; int8 with an fp32 scale per head of 128."""


def find_format(name: str) -> Format:
    """A format by name.

    Raises ``PolicyError`` with the nearest known name.
    """
    if name not in FORMATS:
        hint = did_you_mean(name, FORMATS, f"known are {', '.join(FORMATS)}")
        raise PolicyError(f"format: unknown {name!r}; {hint}")
    return FORMATS[name]
