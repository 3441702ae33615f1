"""What techniques change: a deployment, its policies, and the servers around it."""

from dataclasses import dataclass, field, replace

from policies.config import PolicyConfig
from sim.experiments.scenario import ClusterConfig, Scenario
from sim.step_times.acceptance import Acceptance
from sim.step_times.profile import ApiLatencyFit
from sim.step_times.roofline.deployment import Deployment
from sim.step_times.roofline.server import RooflineServer, base_policies, memory_settings


@dataclass(frozen=True, slots=True)
class Setup:
    """A scenario in the making: techniques are applied one after the other, then it is resolved.

    ``policies`` says nothing of the size of the KV memory: that follows from the deployment, but
    for ``kv_tokens``, which bounds it. ``acceptance`` is the law by which drafts are accepted.
    """

    deployment: Deployment
    policies: PolicyConfig
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    acceptance: Acceptance | None = None
    kv_tokens: int | None = None
    api: ApiLatencyFit = field(default_factory=ApiLatencyFit)

    @classmethod
    def of(cls, deployment: Deployment) -> "Setup":
        """Continuous batching on paged memory, on one replica."""
        return cls(deployment, base_policies(deployment))

    def server(self) -> RooflineServer:
        """The server that the deployment makes."""
        return RooflineServer(self.deployment, self.api, self.acceptance)

    def scenario(self) -> Scenario:
        """What can be simulated.

        Raises ``PolicyError`` where the weights do not fit, and by how much.
        """
        policies = memory_settings(self.deployment, self.policies)
        if self.kv_tokens is not None:
            policies = replace(policies, kv_tokens=min(self.kv_tokens, policies.kv_tokens))
        return Scenario(policies, self.server(), self.cluster)

    def with_deployment(self, **changes: object) -> "Setup":
        """The same with fields of the deployment changed."""
        return replace(self, deployment=replace(self.deployment, **changes))  # type: ignore[arg-type]

    def with_policies(self, **changes: object) -> "Setup":
        """The same with settings of the policies changed."""
        return replace(self, policies=replace(self.policies, **changes))  # type: ignore[arg-type]
