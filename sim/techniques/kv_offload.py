"""Keys and values in host memory: streamed in every step, or fetched instead of computed anew."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from sim.shapes.part import Positive
from sim.step_times.roofline.deployment import Deployment
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique


class KVOffload(Technique):
    """``host_share`` of every sequence's keys and values lie on the host, which has room enough.

    Attention reads them over the host link, of ``gb_per_s`` or the device's own; with
    ``prefetch`` while it reads the others.
    """

    name = "kv-offload"
    family = "memory"
    kind = "system"
    lossless = True
    formula = "t = max(attention, share KV / link), the sum without prefetch; room / (1 - share)"
    source = "FlexGen (Sheng 2023)"

    host_share: Annotated[float, Field(ge=0, lt=1)] = 0.5
    gb_per_s: Positive | None = None
    prefetch: bool = True

    def apply(self, setup: Setup) -> Setup:
        """With that share beside the device."""
        own = setup.deployment.offload
        offload = replace(
            own,
            resident_kv=1 - self.host_share,
            bytes_per_s=own.bytes_per_s if self.gb_per_s is None else self.gb_per_s * 1e9,
            prefetch=self.prefetch,
        )
        return setup.with_deployment(offload=offload)


def fetch_s_per_token(deployment: Deployment) -> float:
    """Seconds per token of a context that comes from the host: its K and V over the link."""
    own = deployment.hardware.host_link_bytes_per_s
    return whole_kv_bytes(deployment) / (deployment.offload.bytes_per_s or own)


def recompute_s_per_token(deployment: Deployment) -> float:
    """Seconds per token of a context that is computed anew: 2 P / F, attention left out."""
    form = deployment.prefill
    flops_per_s = deployment.hardware.peak(form.compute) * form.compute_share
    flops = 2 * deployment.model.active_linear_params()
    return flops / (flops_per_s * deployment.efficiency.compute)


def break_even_bytes_per_s(deployment: Deployment) -> float:
    """The link at which fetching a context takes as long as computing it anew."""
    return whole_kv_bytes(deployment) / recompute_s_per_token(deployment)


def whole_kv_bytes(deployment: Deployment) -> float:
    """Keys and values of one token, wherever they lie."""
    return deployment.model.kv_elements_per_token() * deployment.kv_element_bytes
