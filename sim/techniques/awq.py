"""AWQ: weight-only low bits that spare the weights which matter by scaling them up."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from sim.shapes.part import Count
from sim.step_times.roofline.formats import FORMATS, Format, grouped_bytes
from sim.techniques.format_change import FormatChange


class AWQ(FormatChange):
    """Weights of ``bits`` with a scale and a zero point (fp16) per ``group``.

    Up to 1 % of the channels are salient; they are scaled up before rounding and not kept in fp16,
    which would make the format irregular.
    """

    name = "awq"
    formula = "weight bytes bits / 8 + 4 / group instead of 2; products in bf16"
    source = "AWQ (Lin 2023)"

    bits: Annotated[int, Field(ge=2, le=8)] = 4
    group: Count = 128

    def form(self) -> Format:
        """Low-bit weights, bf16 products."""
        size = grouped_bytes(self.bits, self.group, zero_bits=16)
        form = replace(FORMATS["awq"], weight_bytes=size, quality_bits=self.bits + 0.5)
        return form if self.bits == 4 else replace(form, name=f"awq int{self.bits}")
