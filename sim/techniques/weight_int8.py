"""Weight-only int8: half the bytes to read, the same products."""

from sim.step_times.roofline.formats import FORMATS, Format
from sim.techniques.format_change import FormatChange


class WeightInt8(FormatChange):
    """Weights in int8, turned to bf16 inside the product."""

    name = "weight-int8"
    formula = "weight bytes 1 instead of 2; products in bf16"
    source = "Weight-only quantisation as in FasterTransformer (2022)"

    def form(self) -> Format:
        """int8 weights, bf16 products."""
        return FORMATS["int8"]
