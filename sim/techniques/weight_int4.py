"""Weight-only int4 in groups: about a quarter of the bytes, the same products."""

from dataclasses import replace

from sim.shapes.part import Count
from sim.step_times.roofline.formats import FORMATS, Format, grouped_bytes
from sim.techniques.format_change import FormatChange


class WeightInt4(FormatChange):
    """Weights in int4 with a scale and a zero point (fp16) per ``group``, rounded by GPTQ."""

    name = "weight-int4"
    formula = "weight bytes 0.5 + 4 / group instead of 2; products in bf16"
    source = "GPTQ (Frantar 2022)"

    group: Count = 128

    def form(self) -> Format:
        """int4 weights, bf16 products."""
        return replace(FORMATS["int4"], weight_bytes=grouped_bytes(4, self.group, zero_bits=16))
