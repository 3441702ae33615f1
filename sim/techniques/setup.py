"""What techniques change: a deployment, its policies, and the servers around it."""

from dataclasses import dataclass, field, replace

from servetwin.policies.config import PolicyConfig
from servetwin.sim.experiments.scenario import ClusterConfig, Scenario
from servetwin.sim.step_times.acceptance import Acceptance
from servetwin.sim.step_times.profile import ApiLatencyFit
from servetwin.sim.step_times.roofline.deployment import Deployment
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
        return cls(deployment, base_policies(deployment))

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

    def with_kernels(self, **changes: object) -> "Setup":
        """Return the setup with fields of the deployment's kernels changed."""
        return self.with_deployment(kernels=replace(self.deployment.kernels, **changes))  # type: ignore[arg-type]

    def with_offload(self, **changes: object) -> "Setup":
        """Return the setup with fields of the deployment's offloading changed."""
        return self.with_deployment(offload=replace(self.deployment.offload, **changes))  # type: ignore[arg-type]

    def with_policies(self, **changes: object) -> "Setup":
        """Return the setup with settings of the policies changed."""
        return replace(self, policies=replace(self.policies, **changes))  # type: ignore[arg-type]

    def with_cluster(self, **changes: object) -> "Setup":
        """Return the setup with settings of the cluster changed."""
        return replace(self, cluster=replace(self.cluster, **changes))  # type: ignore[arg-type]
