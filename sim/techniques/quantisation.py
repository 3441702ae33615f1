"""Techniques of number formats: weights, activations, keys and values in fewer bits."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from servetwin.sim.catalogue.entry import Count
from servetwin.sim.catalogue.hardware import Hardware
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.step_times.roofline.formats import (
    BF16,
    BLOCK_FORMATS,
    FORMATS,
    KV_FORMATS,
    Format,
    Grid,
    grouped_bytes,
    with_dynamic_scales,
)
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import Technique
from servetwin.workloads.errors import did_you_mean


def _require_one_of(known: Iterable[str]) -> AfterValidator:
    """Return the validator that refuses all names of formats but these."""
    names = list(known)

    def check(name: str) -> str:
        if name not in names:
            raise ValueError(f"unknown format {name!r}; {did_you_mean(name.lower(), names)}")
        return name

    return AfterValidator(check)


_FormatName = Annotated[str, _require_one_of(FORMATS)]
_BlockName = Annotated[str, _require_one_of(BLOCK_FORMATS)]
_KVName = Annotated[
    str, _require_one_of(name for name, size in KV_FORMATS.items() if size < BF16.weight_bytes)
]

# Model width at which products by LLM.int8 are as fast as in fp16 (Dettmers 2022: 6.7B models).
BREAK_EVEN_WIDTH = 4096

Scales = Literal["static", "dynamic"]


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
    if form.compute == "fp8" and not has_fp8(hardware):
        return replace(
            FORMATS["int8"],
            name=f"{form.name} weights",
            stored_as=form.name,
            source=form.source,
            grid=form.grid,
        )
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


class WeightFormat(Technique):
    """Another format for the weights of both phases, embedding and head included."""

    def form(self) -> Format:
        """Return the format; by default the one with the name of the technique."""
        return FORMATS[self.name]

    def apply(self, setup: Setup) -> Setup:
        """Return the setup in that format; raise where the device cannot compute in it."""
        deployment = setup.deployment
        form = format_on_device(self, self.form(), deployment.hardware, deployment.model)
        return setup.with_deployment(prefill=form, decode=form)


class WeightInt8(WeightFormat):
    """Weights in int8, turned to bf16 inside the product: half the bytes, the same products."""

    def form(self) -> Format:
        """Return int8 weights with bf16 products."""
        return FORMATS["int8"]


class WeightInt4(WeightFormat):
    """Weights in int4 with a scale and a zero point (fp16) per ``group``.

    ``rounding`` to the nearest, or trained with the format in mind (QAT): the same bytes and speed.
    """

    group: Count = 128
    rounding: Literal["nearest", "qat"] = "nearest"

    def form(self) -> Format:
        """Return int4 weights with bf16 products."""
        size = grouped_bytes(4, self.group, zero_bits=16)
        form = replace(FORMATS["int4"], weight_bytes=size, grid=Grid("affine", 4, self.group))
        if self.rounding == "qat":
            form = replace(form, name="int4 by QAT", calibration="training")
        return form


class CalibratedFormat(WeightFormat):
    """Weights of ``bits`` with an fp16 scale and a packed zero point of ``bits`` per ``group``."""

    bits: Annotated[int, Field(ge=2, le=8)] = 4
    group: Count = 128

    def form(self) -> Format:
        """Return weights of ``bits`` with bf16 products."""
        size = grouped_bytes(self.bits, self.group, zero_bits=self.bits)
        grid = Grid("affine", self.bits, self.group)
        form = replace(FORMATS[self.name], weight_bytes=size, grid=grid)
        return form if self.bits == 4 else replace(form, name=f"{self.name} int{self.bits}")


class GPTQ(CalibratedFormat):
    """Weights of ``bits``, rounded one after the other, each making up for those before it."""


class AWQ(CalibratedFormat):
    """Weights of ``bits`` with a scale and a zero point per ``group``.

    Up to 1 % of the channels are salient; they are scaled up before rounding and not kept in fp16,
    which would make the format irregular.
    """


class BlockFormat(WeightFormat):
    """Weights in blocks of GGUF, as llama.cpp has them: 1.6 to 8.5 bits a weight.

    All weights have the one ``format``; a file type such as Q4_K_M keeps some of them wider.
    """

    format: _BlockName = "q4_k"

    def form(self) -> Format:
        """Return the blocks with bf16 products."""
        return FORMATS[self.format]


class LLMInt8(WeightFormat):
    """int8 products but for the columns of outliers, which stay in fp16.

    It saves memory; two products and the sorting between them use up the speed of int8. Decoding is
    slower than in fp16 (15 to 23 % for BLOOM-176B), prompts gain in wide models only.
    """


class SmoothQuant(WeightFormat):
    """Weights and activations in int8: half the bytes and twice the peak.

    Outliers are moved from the activations into the weights beforehand. ``scales`` of activations
    are static, or dynamic: chosen per token, which moves every activation once more.
    """

    scales: Scales = "static"

    def form(self) -> Format:
        """Return int8 weights with int8 products."""
        return _scaled(FORMATS["w8a8"], self.scales)


class FP8(WeightFormat):
    """Half the bytes and twice the peak.

    ``format``: e4m3, or e5m2 (bf8) with more range and a mantissa bit less. ``scales`` of
    activations are static, or dynamic as in ``smooth-quant``. On a device without fp8 products the
    weights are fp8 and the products bf16 (``missing`` emulate), or it is refused.
    """

    format: Literal["e4m3", "e5m2"] = "e4m3"
    scales: Scales = "static"
    missing: Literal["emulate", "refuse"] = "emulate"

    def form(self) -> Format:
        """Return fp8 or bf8 weights with fp8 products."""
        return _scaled(FORMATS["fp8" if self.format == "e4m3" else "bf8"], self.scales)

    def apply(self, setup: Setup) -> Setup:
        """Return the setup in that format; raise where the device has no fp8 and must have it."""
        if self.missing == "refuse" and not has_fp8(setup.deployment.hardware):
            name = setup.deployment.hardware.name
            raise self.refusal(
                f"{name} has no fp8 products; with missing=emulate weights are fp8 and products "
                "bf16, or use weight-int8"
            )
        return super().apply(setup)

    def note(self, setup: Setup) -> str:
        """Return that fp8 is emulated, where the device has no fp8 products."""
        hardware = setup.deployment.hardware
        if has_fp8(hardware):
            return ""
        return (
            f"{hardware.name} has no fp8 products: emulated as weight-only, {self.form().name} "
            "weights are turned to bf16 inside the products"
        )


def has_fp8(hardware: Hardware) -> bool:
    """Return whether the device multiplies in fp8."""
    return "fp8" in hardware.peak_flops_per_s


def _scaled(form: Format, scales: Scales) -> Format:
    return with_dynamic_scales(form) if scales == "dynamic" else form


class PhaseFormats(Technique):
    """Steps with a prompt in ``prefill``, steps of decodes alone in ``decode``.

    int8 products suit prompts, which computing limits, and few bytes suit decodes, which reading
    limits. Formats that store their weights alike (the int8 ones) share them; others need two
    copies.
    """

    prefill: _FormatName = "llm-int8"
    decode: _FormatName = "int8"

    def apply(self, setup: Setup) -> Setup:
        """Return the setup with both formats; raise where the device cannot compute in one."""
        deployment = setup.deployment
        prefill, decode = (
            format_on_device(self, FORMATS[name], deployment.hardware, deployment.model)
            for name in (self.prefill, self.decode)
        )
        return setup.with_deployment(prefill=prefill, decode=decode)


class KVQuantisation(Technique):
    """Keys and values stored in ``format`` and turned to bf16 as attention reads them.

    fp8 (E4M3) has a scale per tensor, bf8 (E5M2) none, int8 and int4 have scales per head of a
    token, q8_0 and q4_0 are blocks of GGUF. Constant states (SSM) stay as they are.
    """

    format: _KVName = "fp8"

    def apply(self, setup: Setup) -> Setup:
        """Return the setup with smaller keys and values; raise where the model keeps none."""
        model = setup.deployment.model
        if not model.kv_elements_per_token():
            raise self.refusal(f"{model.name} keeps no keys and values per token, only a state")
        return setup.with_deployment(kv_element_bytes=KV_FORMATS[self.format])
