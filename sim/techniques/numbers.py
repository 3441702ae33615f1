"""Techniques of number formats: weights, activations, keys and values in fewer bits."""

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from sim.shapes.frozen_model import Count
from sim.shapes.hardware import Hardware
from sim.shapes.model import ModelShape
from sim.step_times.roofline.deployment import Deployment
from sim.step_times.roofline.formats import FORMATS, KV_FORMATS, Format, find_format, grouped_bytes
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique

BREAK_EVEN_WIDTH = 4096
"""Model width at which products by LLM.int8 are as fast as in fp16 (Dettmers 2022: 6.7B models)."""

_WEIGHTS = "the format of the weights"


class NumberFormat(Technique):
    """A technique that rounds numbers of the model to fewer bits."""

    family = "numbers"

    def _on_device(self, form: Format, deployment: Deployment) -> Format:
        """Return ``form`` as this device runs it, for this model (``format_on_device``)."""
        return format_on_device(self, form, deployment.hardware, deployment.model)


def format_on_device(
    technique: Technique, form: Format, hardware: Hardware, model: ModelShape
) -> Format:
    """Return ``form`` as a device runs it, for a model.

    The decomposition of LLM.int8 costs by the rows of a product and pays in wide models. A device
    without an fp8 peak stores fp8 and computes in bf16. Raises ``PolicyError`` where the device has
    no int8 peak for int8 products.
    """
    if form.name == "llm-int8":
        form = replace(form, compute_share=decomposed_share(model.width))
    if form.compute == "fp8" and "fp8" not in hardware.peak_flops_per_s:
        return replace(FORMATS["int8"], name="fp8 weights", stored_as="fp8", source=form.source)
    if form.compute == "int8" and "int8" not in hardware.peak_flops_per_s:
        raise technique.refusal(
            f"{hardware.name} has no int8 peak to compute {form.name} products at; use "
            "weight-int8, which computes in bf16"
        )
    return form


def decomposed_share(width: int) -> float:
    """Return the share of the int8 peak that a product of LLM.int8 reaches: d / (d + 4096).

    Quantising, picking outliers and adding up grow with d, the product with its square.
    """
    return width / (width + BREAK_EVEN_WIDTH)


class WeightFormat(NumberFormat):
    """Another format for the weights of both phases, embedding and head included."""

    chooses = _WEIGHTS

    def form(self) -> Format:
        """Return the format; by default the one with the name of the technique."""
        return FORMATS[self.name]

    def apply(self, setup: Setup) -> Setup:
        """Return the setup in that format; raise where the device cannot compute in it."""
        form = self._on_device(self.form(), setup.deployment)
        return setup.with_deployment(prefill=form, decode=form)


class WeightInt8(WeightFormat):
    """Weights in int8, turned to bf16 inside the product: half the bytes, the same products."""

    name = "weight-int8"
    formula = "weight bytes 1 instead of 2; products in bf16"
    source = "Weight-only quantisation as in FasterTransformer (2022)"

    def form(self) -> Format:
        """Return int8 weights with bf16 products."""
        return FORMATS["int8"]


class WeightInt4(WeightFormat):
    """Weights in int4 with a scale and a zero point (fp16) per ``group``, rounded by GPTQ."""

    name = "weight-int4"
    formula = "weight bytes 0.5 + 4 / group instead of 2; products in bf16"
    source = "GPTQ (Frantar 2022)"

    group: Count = 128

    def form(self) -> Format:
        """Return int4 weights with bf16 products."""
        return replace(FORMATS["int4"], weight_bytes=grouped_bytes(4, self.group, zero_bits=16))


class AWQ(WeightFormat):
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
        """Return weights of ``bits`` with bf16 products."""
        size = grouped_bytes(self.bits, self.group, zero_bits=16)
        form = replace(FORMATS["awq"], weight_bytes=size, quality_bits=self.bits + 0.5)
        return form if self.bits == 4 else replace(form, name=f"awq int{self.bits}")


class LLMInt8(WeightFormat):
    """int8 products but for the columns of outliers, which stay in fp16.

    It saves memory; two products and the sorting between them use up the speed of int8. Decoding is
    slower than in fp16 (15 to 23 % for BLOOM-176B), prompts gain in wide models only.
    """

    name = "llm-int8"
    formula = "weight bytes 1.01; int8 peak x d / (d + 4096); 0.42 of the bandwidth"
    source = "LLM.int8 (Dettmers 2022); times by Belkada and Dettmers 2022"


class SmoothQuant(WeightFormat):
    """Weights and activations in int8: half the bytes and twice the peak.

    Outliers are moved from the activations into the weights beforehand (static W8A8).
    """

    name = "smooth-quant"
    formula = "weight bytes 1 instead of 2; products at the int8 peak"
    source = "SmoothQuant (Xiao 2022)"

    def form(self) -> Format:
        """Return int8 weights with int8 products."""
        return FORMATS["w8a8"]


class FP8(WeightFormat):
    """Half the bytes and twice the peak; on a device without fp8 products half the bytes only."""

    name = "fp8"
    formula = "weight bytes 1 instead of 2; products at the fp8 peak, or in bf16 without one"
    source = "FP8 Formats for Deep Learning (Micikevicius 2022)"


def _known(name: str) -> str:
    if name not in FORMATS:
        raise ValueError(f"unknown format {name!r}; known are {', '.join(FORMATS)}")
    return name


_FormatName = Annotated[str, AfterValidator(_known)]


class PhaseFormats(NumberFormat):
    """Steps with a prompt in ``prefill``, steps of decodes alone in ``decode``.

    int8 products suit prompts, which computing limits, and few bytes suit decodes, which reading
    limits. Formats that store their weights alike (the int8 ones) share them; others need two
    copies.
    """

    name = "phase-formats"
    formula = "2 P n / F_int8 + (m - 1) P w / BW"
    source = "Paddle's deployment of 175B models: LLM.int8 for contexts, weight-only to generate"
    chooses = _WEIGHTS

    prefill: _FormatName = "llm-int8"
    decode: _FormatName = "int8"

    def apply(self, setup: Setup) -> Setup:
        """Return the setup with both formats; raise where the device cannot compute in one."""
        formats = map(find_format, (self.prefill, self.decode))
        prefill, decode = (self._on_device(form, setup.deployment) for form in formats)
        return setup.with_deployment(prefill=prefill, decode=decode)


class KVQuantisation(NumberFormat):
    """Keys and values stored in ``format`` and turned to bf16 as attention reads them.

    int8 has an fp32 scale per head of a token. Constant states (SSM) stay as they are.
    """

    name = "kv-quantisation"
    formula = "KV bytes per element 1 (fp8) or 1.03 (int8) instead of 2"
    source = "KVQuant (Hooper 2024); fp8 as in vLLM"

    format: Literal["fp8", "int8"] = "fp8"

    def apply(self, setup: Setup) -> Setup:
        """Return the setup with smaller keys and values; raise where the model keeps none."""
        model = setup.deployment.model
        if not model.kv_elements_per_token():
            raise self.refusal(f"{model.name} keeps no keys and values per token, only a state")
        return setup.with_deployment(kv_element_bytes=KV_FORMATS[self.format])
