"""The setup that techniques change: a deployment, its policies, and the servers around it."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from math import ceil
from typing import Any

from servetwin.policies.config import PolicyConfig
from servetwin.sim.catalogue.entry import FrozenModel
from servetwin.sim.catalogue.layout import Layout
from servetwin.sim.experiments.scenario import ClusterConfig, Scenario
from servetwin.sim.step_times.acceptance import Acceptance
from servetwin.sim.step_times.profile import ApiLatencyFit
from servetwin.sim.step_times.roofline.deployment import Adapters, Deployment
from servetwin.sim.step_times.roofline.formats import Format
from servetwin.sim.step_times.roofline.server import RooflineServer, base_policies, memory_settings


@dataclass(frozen=True, slots=True)
class Setup:
    """A scenario in the making: techniques change it one after the other, then it is resolved.

    The size of the KV memory in ``policies`` is ignored: it follows from the deployment unless
    ``kv_tokens`` says it. ``acceptance`` says how many drafted tokens a pass accepts.
    """

    deployment: Deployment
    policies: PolicyConfig
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    acceptance: Acceptance | None = None
    kv_tokens: int | None = None
    api: ApiLatencyFit = field(default_factory=ApiLatencyFit)

    @classmethod
    def of(cls, deployment: Deployment) -> "Setup":
        """Return ``deployment`` with continuous batching on paged memory, on one replica."""
        return cls(deployment, base_policies(deployment.model.max_model_len))

    def server(self) -> RooflineServer:
        """Return the server model of the deployment."""
        return RooflineServer(self.deployment, self.api, self.acceptance)

    def scenario(self) -> Scenario:
        """Return the scenario to simulate.

        Raises ``PolicyError`` that says by how much the weights do not fit.
        """
        policies = memory_settings(self.deployment, self.policies)
        if self.kv_tokens is not None:
            policies = replace(policies, kv_tokens=self.kv_tokens)
        return Scenario(policies, self.server(), self.cluster)

    def with_deployment(self, **changes: object) -> "Setup":
        """Return the setup with fields of the deployment changed."""
        return replace(self, deployment=replace(self.deployment, **changes))  # type: ignore[arg-type]

    def with_layout(self, layout: Layout) -> "Setup":
        """Return the setup on the devices of ``layout``.

        Attention ranks of a model without experts are servers of their own; with experts they step
        together. Raises ``PolicyError`` for widths that do not divide the model.
        """
        parallel = replace(
            self.deployment.parallel,
            tensor=layout.tp, pipeline=layout.pp, data=layout.dp, expert=layout.ep,
            lockstep=layout.dp > 1,
        )  # fmt: skip
        if layout.dp == 1:
            return self.with_deployment(parallel=parallel)
        one = ClusterConfig.of(layout, self.deployment.model)
        servers = one.replicas * self.cluster.replicas
        placed = self.with_cluster(replicas=servers, ranks=one.ranks, router=one.router)
        if one.ranks == 1:
            parallel = replace(parallel, data=1, expert=1, lockstep=False)
        return placed.with_deployment(parallel=parallel)

    def with_kernels(self, **changes: object) -> "Setup":
        """Return the setup with fields of the deployment's kernels changed."""
        return self.with_deployment(kernels=replace(self.deployment.kernels, **changes))  # type: ignore[arg-type]

    def with_offload(self, **changes: object) -> "Setup":
        """Return the setup with fields of the deployment's offloading changed."""
        return self.with_deployment(offload=replace(self.deployment.offload, **changes))  # type: ignore[arg-type]

    def with_policies(self, **changes: object) -> "Setup":
        """Return the setup with settings of the policies changed."""
        return replace(self, policies=self.policies.changed(**changes))

    def with_adapters(self, adapters: Adapters) -> "Setup":
        """Return the setup with LoRA adapters; loading one takes as long as its bytes of KV.

        Raises ``PolicyError`` where the model keeps no keys and values.
        """
        token_bytes = self.server().kv_bytes_per_token()
        loaded = ceil(adapters.stored_bytes(self.deployment.model) / token_bytes)
        placed = self.with_deployment(adapters=adapters)
        return placed.with_policies(adapter_slots=adapters.slots, adapter_tokens=loaded)

    def with_cluster(self, **changes: object) -> "Setup":
        """Return the setup with settings of the cluster changed."""
        return replace(self, cluster=replace(self.cluster, **changes))  # type: ignore[arg-type]


# A layer of Llama-7B, launched from Python, whatever the device: 25.5 tokens/s
# ("Accelerating Generative AI II", pytorch.org, 2023).
LAYER_S = 1 / 25.5 / 32
# Keys and values that grow by copying are read, written, and read by the attention.
GROWTH_SLOWDOWN = 3.0


def with_eager_kernels(setup: Setup) -> Setup:
    """Return ``setup`` run layer by layer from Python: nothing fused, scores in memory.

    Python launches a layer while the device reads weights; only what it takes longer is added.
    """
    deployment, efficiency = setup.deployment, setup.deployment.efficiency
    bytes_per_s = deployment.hardware.memory_bytes_per_s * efficiency.memory
    weights_s = deployment.resident_weight_bytes() / deployment.parallel.devices / bytes_per_s
    python_s = deployment.model.layer_count * LAYER_S
    overhead_s = max(efficiency.overhead_s, python_s - weights_s)
    slow = setup.with_deployment(efficiency=replace(efficiency, overhead_s=overhead_s))
    return slow.with_kernels(fused=False, flash_attention=False, attention_slowdown=GROWTH_SLOWDOWN)


def changed_fields(before: Setup, after: Setup) -> list[str]:
    """Return the names of the fields that differ, such as ``deployment.kernels.fused``, sorted.

    Members of two tuples of one length share a name (``deployment.model.layers.mixer.kv_heads``).
    Where types or lengths differ, the whole value counts as changed, and a format always does.
    """
    return sorted({name.removeprefix(".") for name in _changed("", before, after)})


def _changed(name: str, before: object, after: object) -> Iterator[str]:
    if before == after:
        return
    old, new = _members(before), _members(after)
    if old and type(before) is type(after) and len(old) == len(new):
        for (member, value), (_, other) in zip(old, new, strict=True):
            yield from _changed(name + member, value, other)
    else:
        yield name


def _members(value: object) -> list[tuple[str, Any]]:
    """Return the members of a tuple, a dataclass or a model, with what names them."""
    if isinstance(value, tuple):
        return [("", member) for member in value]
    if isinstance(value, FrozenModel):
        return [(f".{name}", member) for name, member in value]
    if is_dataclass(value) and not isinstance(value, Format):
        return [(f".{field.name}", getattr(value, field.name)) for field in fields(value)]
    return []
