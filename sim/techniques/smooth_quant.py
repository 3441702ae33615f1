"""SmoothQuant: static W8A8, because outliers moved from the activations into the weights."""

from sim.step_times.roofline.formats import FORMATS, Format
from sim.techniques.format_change import FormatChange


class SmoothQuant(FormatChange):
    """Weights and activations in int8: half the bytes and twice the peak."""

    name = "smooth-quant"
    formula = "weight bytes 1 instead of 2; products at the int8 peak"
    source = "SmoothQuant (Xiao 2022)"

    def form(self) -> Format:
        """int8 weights and products."""
        return FORMATS["w8a8"]
