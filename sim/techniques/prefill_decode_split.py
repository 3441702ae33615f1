"""Prefill and decode on servers of their own, joined by a link for keys and values."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from sim.shapes.part import Count, Positive
from sim.techniques.kv_requirements import require_whole_contexts
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique


class PrefillDecodeSplit(Technique):
    """``prefill_replicas`` and ``decode_replicas``; off, as many that do both.

    Keys and values go over a link of ``gb_per_s`` (10^9 bytes) and ``latency_us`` per prefill
    replica. ``layerwise``: a layer is sent while the next one is computed, so that only the last
    one's share is waited for; a link that keeps up is assumed.
    """

    name = "prefill-decode-split"
    family = "serving"
    kind = "system"
    lossless = True
    formula = "n KV bytes / link per request; goodput min(n r_p, m r_d) / (n + m)"
    source = "DistServe (Zhong 2024); Splitwise (Patel 2024)"

    prefill_replicas: Count = 1
    decode_replicas: Count = 1
    gb_per_s: Positive = 25.0
    latency_us: Annotated[float, Field(ge=0)] = 0.0
    layerwise: bool = False

    def apply(self, setup: Setup) -> Setup:
        """Split; refused where there is nothing to hand over, or not all of a context."""
        require_whole_contexts(self, setup)
        beside = setup.deployment.model.layer_count if self.layerwise else 1
        cluster = replace(
            setup.cluster,
            replicas=1,
            prefill_replicas=self.prefill_replicas,
            decode_replicas=self.decode_replicas,
            link_bytes_per_s=self.gb_per_s * 1e9 * beside,
            link_latency_s=self.latency_us * 1e-6,
        )
        return replace(setup, cluster=cluster)

    def off(self, setup: Setup) -> Setup:
        """The same number of servers, each for whole requests."""
        cluster = replace(
            setup.cluster,
            replicas=self.prefill_replicas + self.decode_replicas,
            prefill_replicas=0,
            decode_replicas=0,
        )
        return replace(setup, cluster=cluster)
