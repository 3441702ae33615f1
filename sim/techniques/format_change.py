"""What all changes of the weights' number format have in common."""

from dataclasses import replace

from sim.step_times.roofline.deployment import Deployment
from sim.step_times.roofline.formats import FORMATS, Format
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique
from workloads.errors import PolicyError

BREAK_EVEN_WIDTH = 4096
"""Model width at which products by LLM.int8 are as fast as in fp16 (Dettmers 2022: 6.7B models)."""


class FormatChange(Technique):
    """The weights, of both phases, in another format; embedding and head included."""

    family = "numbers"
    kind = "algorithm"
    lossless = False

    def form(self) -> Format:
        """The format by the technique's name."""
        return FORMATS[self.name]

    def apply(self, setup: Setup) -> Setup:
        """In that format; refused where the device cannot compute in it."""
        form = as_it_runs(self.form(), setup.deployment, self.name)
        return setup.with_deployment(prefill=form, decode=form)


def as_it_runs(form: Format, deployment: Deployment, technique: str) -> Format:
    """``form`` on this device, for this model.

    Decomposing a product as LLM.int8 does costs by its rows, and is worth it in wide models. What
    has no fp8 peak stores fp8 and computes in bf16. Raises ``PolicyError`` where int8 products are
    asked of a device that has none.
    """
    hardware = deployment.hardware
    if form.name == "llm-int8":
        form = replace(form, compute_share=decomposed_share(deployment.model.width))
    if form.compute == "fp8" and "fp8" not in hardware.peak_flops_per_s:
        return replace(FORMATS["int8"], name="fp8 weights", stored_as="fp8", source=form.source)
    if form.compute == "int8" and "int8" not in hardware.peak_flops_per_s:
        raise PolicyError(
            f"{technique}: {hardware.name} has no int8 peak to compute {form.name} products at; "
            "use weight-int8, which computes in bf16"
        )
    return form


def decomposed_share(width: int) -> float:
    """Of the int8 peak, what a product of LLM.int8 reaches: d / (d + 4096).

    Quantising, picking outliers and adding up grow with d, the product with its square.
    """
    return width / (width + BREAK_EVEN_WIDTH)
