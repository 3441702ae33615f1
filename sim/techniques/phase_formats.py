"""A format for each phase: int8 products where that is the limit, few bytes where reading is."""

from typing import Annotated

from pydantic import AfterValidator

from sim.step_times.roofline.deployment import Deployment
from sim.step_times.roofline.formats import FORMATS, find_format
from sim.techniques.format_change import as_it_runs
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique


def _known(name: str) -> str:
    if name not in FORMATS:
        raise ValueError(f"unknown format {name!r}; known are {', '.join(FORMATS)}")
    return name


FormatName = Annotated[str, AfterValidator(_known)]


class PhaseFormats(Technique):
    """Steps with a prompt in ``prefill``, steps of decodes alone in ``decode``.

    Formats that store their weights alike (the int8 ones) share them; others need two copies.
    """

    name = "phase-formats"
    family = "numbers"
    kind = "algorithm"
    lossless = False
    formula = "2 P n / F_int8 + (m - 1) P w / BW"
    source = "Paddle's deployment of 175B models: LLM.int8 for contexts, weight-only to generate"

    prefill: FormatName = "w8a8"
    decode: FormatName = "int8"

    def apply(self, setup: Setup) -> Setup:
        """Both phases in their formats; refused where the device cannot compute in one."""
        prefill, decode = (
            as_it_runs(find_format(name), setup.deployment, self.name)
            for name in (self.prefill, self.decode)
        )
        return setup.with_deployment(prefill=prefill, decode=decode)


def ideal_request_s(
    deployment: Deployment, weights: float, prompt_tokens: int, output_tokens: int
) -> float:
    """One request alone, at the data sheet's limits: a context pass, then a pass per token.

    Each pass takes the longer of 2 P FLOPs a token (P: the layers) and reading all ``weights``;
    attention, keys and values, and messages are left out.
    """
    passes = ((deployment.prefill, prompt_tokens, 1), (deployment.decode, 1, output_tokens - 1))
    total = 0.0
    for form, tokens, times in passes:
        flops = 2 * deployment.model.active_linear_params() * tokens
        compute_s = flops / (deployment.hardware.peak(form.compute) * form.compute_share)
        memory_s = weights * form.weight_bytes / deployment.hardware.memory_bytes_per_s
        total += times * max(compute_s, memory_s)
    return total / deployment.parallel.devices
