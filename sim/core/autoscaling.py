"""How many replicas a fleet has: rules that look at its load now and then.

A rule is written ``queue:target=8,min=1,max=16``. Those of a load use the formula of Kubernetes'
Horizontal Pod Autoscaler: desired = ceil(current * metric / target), unchanged within a tolerance
of 10 % (https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/). The
metric is the mean over all replicas; those that are starting have no load yet.
"""

from math import ceil, inf
from typing import Annotated, ClassVar, NamedTuple, Self

from pydantic import Field, model_validator

from servetwin.sim.catalogue.entry import (
    Count,
    FrozenModel,
    NotNegative,
    Positive,
    Share,
    parse_entry,
)


class FleetLoad(NamedTuple):
    """What a rule sees of a fleet; loads are sums over its replicas."""

    now_s: float
    replicas: int
    """Those that serve or start."""
    waiting: int
    utilisation: float
    """Requests in hand, in those that a replica runs at most (``max_seqs``)."""
    kv: float
    """Their prompt and declared output tokens, in KV memories."""
    ttft_s: list[float]
    """Of the requests that ended since the last look; infinite without a token."""


class Autoscaling(FrozenModel):
    """A rule, its bounds, and what it takes to start a replica.

    It looks every ``interval_s``. It drains replicas only where it wanted no more all through
    ``stabilisation_s`` (Kubernetes' default), and changes nothing for ``cooldown_s`` after a
    change. A replica that starts is provisioned, reads its weights and warms up.
    """

    min: Count = 1
    max: Count
    interval_s: Positive = 15.0
    stabilisation_s: NotNegative = 300.0
    cooldown_s: NotNegative = 0.0
    provision_s: NotNegative = 0.0
    weights_gb: NotNegative = 0.0
    gb_per_s: Positive = 1.0
    warm_up_s: NotNegative = 0.0

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}; give max={self.min} or more")
        return self

    @property
    def start_up_s(self) -> float:
        """How long a replica starts."""
        return self.provision_s + self.weights_gb / self.gb_per_s + self.warm_up_s

    def desired(self, load: FleetLoad) -> int:
        """Return how many replicas there should be, whatever the bounds."""
        raise NotImplementedError


class LoadRule(Autoscaling):
    """A rule that holds a load of each replica near its ``target``."""

    reads: ClassVar[str]
    """The load, by its name in ``FleetLoad``."""
    target: Positive
    tolerance: NotNegative = 0.1

    def desired(self, load: FleetLoad) -> int:
        """Return over how many replicas the load is the target on each, within the tolerance."""
        total: float = getattr(load, self.reads)
        wanted = self.target * load.replicas
        if abs(total - wanted) <= self.tolerance * wanted:
            return load.replicas
        return ceil(total / self.target - 1e-9)


class Utilisation(LoadRule):
    """``target`` is the share of its sequences (``max_seqs``) that a replica has in hand."""

    reads: ClassVar[str] = "utilisation"
    target: Annotated[float, Field(gt=0, le=10)] = 0.7


class Queue(LoadRule):
    """``target`` is the number of requests that wait on a replica."""

    reads: ClassVar[str] = "waiting"
    target: Positive = 4.0


class KVUse(LoadRule):
    """``target`` is the share of the KV memory that the requests in hand need at most."""

    reads: ClassVar[str] = "kv"
    target: Annotated[float, Field(gt=0, le=10)] = 0.7


class Attainment(Autoscaling):
    """``target`` is the share of requests with their first token within ``ttft_ms``.

    A tenth more replicas where fewer have it, one less where all have.
    """

    target: Share = 0.99
    ttft_ms: Positive = 500.0

    def desired(self, load: FleetLoad) -> int:
        """Return the replicas, some more, or one less."""
        kept = sum(ttft_s <= self.ttft_ms / 1000 for ttft_s in load.ttft_s)
        if kept < self.target * len(load.ttft_s):
            return load.replicas + ceil(load.replicas / 10)
        return load.replicas - (kept == len(load.ttft_s))


class Schedule(Autoscaling):
    """``steps`` say how many from when on: ``4/16@28800`` is 4, and 16 from 28,800 s on."""

    steps: Annotated[str, Field(pattern=r"^[0-9]+(/[0-9]+@[0-9]+([.][0-9]+)?)*$")]

    def desired(self, load: FleetLoad) -> int:
        """Return the replicas of this time."""
        steps = (step.partition("@") for step in self.steps.split("/"))
        begun = [(at, int(n)) for n, _, text in steps if (at := float(text or 0)) <= load.now_s]
        return max(begun)[1]


RULES: dict[str, type[Autoscaling]] = {
    "utilisation": Utilisation,
    "queue": Queue,
    "kv": KVUse,
    "slo": Attainment,
    "schedule": Schedule,
}


def parse_rule(text: str, where: str = "autoscaling") -> Autoscaling:
    """Read a rule; raises ``PolicyError`` that names ``where``, the key and what would be right."""
    return parse_entry(text, RULES, where, "rule")


class Autoscaler:
    """Asks a rule, and holds its bounds, its stabilisation window and its cooldown."""

    def __init__(self, rule: Autoscaling) -> None:
        self._rule = rule
        self._wanted: list[tuple[float, int]] = []
        self._changed_s = -inf

    def change(self, load: FleetLoad) -> int:
        """Return how many replicas to start; below 0, how many to drain."""
        rule, now_s, replicas = self._rule, load.now_s, load.replicas
        wanted = min(max(rule.desired(load), rule.min), rule.max)
        since_s, before = now_s - rule.stabilisation_s, self._wanted or [(now_s, replicas)]
        self._wanted = [(at, count) for at, count in before if at > since_s] + [(now_s, wanted)]
        if wanted < replicas:
            wanted = min(replicas, max(count for _, count in self._wanted))
        if replicas >= rule.min and now_s < self._changed_s + rule.cooldown_s:
            return 0
        if wanted != replicas:
            self._changed_s = now_s
        return wanted - replicas
