"""fp8 weights and activations, where the device has fp8 products."""

from sim.techniques.format_change import FormatChange


class FP8(FormatChange):
    """Half the bytes and twice the peak; on a device without fp8 products half the bytes only."""

    name = "fp8"
    formula = "weight bytes 1 instead of 2; products at the fp8 peak, or in bf16 without one"
    source = "FP8 Formats for Deep Learning (Micikevicius 2022)"
