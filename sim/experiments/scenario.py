"""A scenario: servers and their policies, one replication of it, and the devices it needs."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from math import inf
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from servetwin.policies.build import build_router, build_scheduler
from servetwin.policies.config import MOST, PolicyConfig, require
from servetwin.policies.queues.quotas import parse_quotas
from servetwin.policies.registry import ROUTERS
from servetwin.policies.routers.replica_loads import ReplicaLoads, RouterConfig
from servetwin.sim.catalogue.shipped import shipped_hardware
from servetwin.sim.core.kv_transfer import KVLink
from servetwin.sim.core.recorder import Recorder
from servetwin.sim.core.simulate import simulate
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.acceptance import Verifier, require_acceptance
from servetwin.sim.step_times.extrapolation import draw_extrapolation_factor
from servetwin.sim.step_times.profile import Profile, StepTimeFit
from servetwin.sim.step_times.provenance import Origin
from servetwin.sim.step_times.server_model import ServerModel, StepTimeSource
from servetwin.sim.step_times.step_time import StepNoise, StepTime
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.graphs.task_graph import form_a_loop
from servetwin.workloads.request import Request

if TYPE_CHECKING:
    from servetwin.sim.catalogue.layout import Layout
    from servetwin.sim.catalogue.model import ModelShape
    from servetwin.sim.core.fleet.gateway import FleetPlan
    from servetwin.sim.core.pools import Pool, Role

_ROUTERS_WITHOUT_CHANCE = ROUTERS.keys() - {"random", "power-of-two"}


# The router of attention ranks, where nothing else is given.
RANK_ROUTER = "vllm-dp"
# The least value of each count of a cluster.
LEAST = {"replicas": 1, "ranks": 1, "prefill_replicas": 0, "decode_replicas": 0, "retries": 0}
# The least value of each time of a fleet, where it is given.
LEAST_S = {"detection_s": 0.0, "timeout_s": 0.001, "hedge_s": 0.0}
# The device of a server that does not say what it runs on.
UNKNOWN_DEVICE = "server"
# Each server of a run takes about 8 kB and 0.1 ms before it gets a request.
MOST_SERVERS = 100_000
# A step of a replica takes so many times as long at most.
MOST_FACTOR = 1_000_000


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The number of servers, the routers before them, and whether clients form a closed loop."""

    replicas: int = 1
    """Servers of each profile that serve whole requests, behind the router."""
    ranks: int = 1
    """Attention ranks of each server, which share its experts and step together."""
    router: str = "round-robin"
    """Router, which chooses a server for each request."""
    staleness_s: float = 0.0
    """Age of the loads that the router sees; 0: always current."""
    prefill_replicas: int = 0
    """Servers that compute prompts only; needs ``decode_replicas``."""
    decode_replicas: int = 0
    """Servers that decode only."""
    decode_router: str = "least-outstanding"
    """Router that chooses a server for the decodes."""
    link_bytes_per_s: float = 25e9
    """Bandwidth of the link that moves keys and values from prefill to decode servers."""
    link_latency_s: float = 0.0
    """Time before the first byte over that link."""
    closed_loop: bool | None = None
    """Send a follow-up after its parents' answers, else at its stamp; None: where there are any."""
    fail_fast: bool = False
    """End a task at the first request without an answer."""
    autoscaling: str = ""
    """Rule that starts and drains servers, such as ``queue:target=4,min=1,max=16``; also of
    utilisation, kv, slo and schedule."""
    faults: str = ""
    """What happens to servers, such as ``crash:replica=3,at_s=600,for_s=120``, or slow by a
    factor."""
    detection_s: float = 30.0
    """Time until health checks notice that a server has crashed."""
    retries: int = 1
    """Times that a request without a token is sent again when its server crashes."""
    timeout_s: float | None = None
    """Per-request timeout in seconds, after which its client leaves; None: clients stay."""
    hedge_s: float | None = None
    """Time without a token after which a request goes to another server too; None: never."""
    quotas: str = ""
    """Tokens per second and burst of each tenant, such as ``acme=2000/60000,*=500/10000``."""

    def __post_init__(self) -> None:
        for name in ("router", "decode_router"):
            object.__setattr__(self, name, ROUTERS.name_of(getattr(self, name)))
        for name, least in LEAST.items():
            count = getattr(self, name)
            require(count >= least, name, count, f"at least {least}")
            require(count <= MOST_SERVERS, name, count, f"at most {MOST_SERVERS:,}")
        if bool(self.prefill_replicas) != bool(self.decode_replicas):
            raise PolicyError(
                f"prefill_replicas and decode_replicas go together, not {self.prefill_replicas} "
                f"and {self.decode_replicas}"
            )
        self._try_out()

    @property
    def fleet(self) -> "FleetPlan | None":
        """What happens to the servers; None where nothing does."""
        settings = {self.autoscaling, self.faults, self.quotas, self.timeout_s, self.hedge_s}
        if settings <= {"", None}:
            return None
        from servetwin.sim.core.autoscaling import parse_rule
        from servetwin.sim.core.faults import parse_faults
        from servetwin.sim.core.fleet.gateway import FleetPlan

        rule = parse_rule(self.autoscaling) if self.autoscaling else None
        plan = FleetPlan(
            self.replicas, parse_faults(self.faults), rule, self.detection_s, self.retries,
            inf if self.timeout_s is None else self.timeout_s,
            inf if self.hedge_s is None else self.hedge_s, parse_quotas(self.quotas),
        )  # fmt: skip
        nothing = FleetPlan(self.replicas, (), None, self.detection_s, self.retries)
        return None if plan == nothing else plan

    @classmethod
    def of(cls, layout: "Layout", model: "ModelShape") -> Self:
        """Return one server of ``layout``.

        Attention ranks of a model without experts are servers of their own.
        """
        if layout.dp == 1:
            return cls()
        ranks, replicas = (layout.dp, 1) if model.experts() else (1, layout.dp)
        return cls(replicas=replicas, ranks=ranks, router=RANK_ROUTER)

    def _try_out(self) -> None:
        """Build routers and link, so that a wrong one is an error even if nothing needs it."""
        for router in (self.router, self.decode_router):
            config = RouterConfig(router, self.staleness_s)
            build_router(ReplicaLoads([1.0], self.staleness_s), config, np.random.default_rng(0))
        KVLink.of(1.0, self.link_bytes_per_s, self.link_latency_s)
        for name, least_s in LEAST_S.items():
            time_s = least_s if getattr(self, name) is None else getattr(self, name)
            require(least_s <= time_s < MOST, name, time_s, f"seconds from {least_s:g} on")
        if (fleet := self.fleet) is None:
            return
        slowest = max((getattr(fault, "factor", 1.0) for fault in fleet.faults), default=1.0)
        require(slowest <= MOST_FACTOR, "faults: factor", slowest, f"at most {MOST_FACTOR:,}")
        if (rule := fleet.rule) is not None:
            bounds = f"from min {rule.min} to max {rule.max} of autoscaling"
            require(rule.min <= self.replicas <= rule.max, "replicas", self.replicas, bounds)
            most = f"at most {MOST_SERVERS:,}"
            require(rule.max <= MOST_SERVERS, "autoscaling: max", rule.max, most)

    @property
    def splits(self) -> bool:
        """Whether prompts and decodes run on separate servers."""
        return self.prefill_replicas > 0

    def as_dict(self) -> dict[str, Any]:
        """Return the settings by name, for files."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True, slots=True)
class Scenario:
    """Servers of ``profile``, and of ``more_profiles`` (a pool each), under ``policies``."""

    policies: PolicyConfig
    profile: ServerModel
    cluster: ClusterConfig = ClusterConfig()
    more_profiles: tuple[ServerModel, ...] = ()
    eager_preset: str | None = None
    """The preset whose eager kernels the servers have."""
    check: bool = False
    """Check all invariants after each call of a scheduler (``policies.invariants``)."""

    @property
    def profiles(self) -> tuple[ServerModel, ...]:
        """All profiles, one for each pool."""
        return (self.profile, *self.more_profiles)

    @property
    def origins(self) -> tuple[Origin, ...]:
        """Where the step times come from, pool by pool, each origin once."""
        return tuple(dict.fromkeys(profile.origin for profile in self.profiles))

    def is_certain(self) -> bool:
        """Return whether no profile has bootstrap fits, drift or noise to draw from."""
        return all(profile.is_certain() for profile in self.profiles)

    def is_repeatable(self) -> bool:
        """Return whether every replication is the same: no profile and no router draws."""
        routers = {self.cluster.router, self.cluster.decode_router}
        return self.is_certain() and routers <= _ROUTERS_WITHOUT_CHANCE

    def servers(self) -> list[ServerModel]:
        """Return the profile of every server, in their order."""
        return [profile for profile, count, _ in self.pools() for _ in range(count)]

    def pools(self) -> "list[tuple[ServerModel, int, Role]]":
        """Return the profile of each pool of servers, how many they are, and what they do."""
        cluster = self.cluster
        if not cluster.splits:
            most = fleet.most if (fleet := cluster.fleet) else cluster.replicas
            return [(profile, most, "serve") for profile in self.profiles]
        return [
            (self.profiles[0], cluster.prefill_replicas, "prefill"),
            (self.profiles[-1], cluster.decode_replicas, "decode"),
        ]

    def replicas(self) -> list[ServerModel]:
        """Return the profile of every replica, in the order of their numbers: of each rank."""
        return [server for server in self.servers() for _ in range(self.cluster.ranks)]

    @property
    def name(self) -> str:
        """Short label of the policies and the servers."""
        cluster = self.cluster
        if cluster.splits:
            return f"{self.policies.name} {cluster.prefill_replicas}P{cluster.decode_replicas}D"
        servers = cluster.replicas * (1 + len(self.more_profiles))
        return self.policies.name + (f" x{servers} {cluster.router}" if servers > 1 else "")


def replicate(
    trace: Iterable[Request], scenario: Scenario, seed: np.random.SeedSequence, *,
    draw: bool = False, extrapolate: bool = False, macro: bool = True,
    on_arrival: Callable[[int], None] | None = None, recorder: Recorder | None = None,
) -> Run:  # fmt: skip
    """Simulate ``trace`` once; with ``draw``, on coefficients drawn from the calibration's fits.

    ``extrapolate`` also draws how much these cost beyond what was measured
    (``sim.step_times.extrapolation``). The same ``seed`` draws the same of all that, and the same
    noise, whatever the policies and however often: common random numbers.
    """
    for profile in scenario.profiles:
        require_acceptance(scenario.policies, profile.acceptance)
    again = np.random.SeedSequence(seed.entropy, spawn_key=seed.spawn_key)
    coefficient_seed, noise_seed, draft_seed, extrapolation_seed = again.spawn(4)
    factor = None
    if extrapolate:
        factor = draw_extrapolation_factor(np.random.default_rng(extrapolation_seed))
    drawing = np.random.default_rng(coefficient_seed) if draw else None
    build = partial(build_scheduler, check=scenario.check)
    scheduler, acceptance = build(scenario.policies), scenario.profile.acceptance
    layout = scheduler.memory.layout
    models = [_model(p.step_time(layout), drawing, factor) for p in scenario.profiles]
    cluster = scenario.cluster
    closed_loop = cluster.closed_loop is not False and form_a_loop(trace)
    recorder = recorder or Recorder(scenario.profile.api.model())
    if len(scenario.replicas()) > 1 or closed_loop or cluster.fleet:
        from servetwin.sim.core.cluster import simulate_cluster

        run = simulate_cluster(
            trace, _pools(scenario, models), RouterConfig(cluster.router, cluster.staleness_s),
            RouterConfig(cluster.decode_router, cluster.staleness_s), _link(scenario),
            recorder=recorder, closed_loop=closed_loop, fail_fast=cluster.fail_fast, macro=macro,
            on_arrival=on_arrival, seed=noise_seed.generate_state(4).tolist(), build=build,
            fleet=cluster.fleet,
        )  # fmt: skip
    else:
        fit = scenario.profile.step_time(layout)
        noise = StepNoise(fit.noise_factors(), np.random.default_rng(noise_seed))
        run = simulate(
            trace, scheduler, models[0], noise=noise, macro=macro, recorder=recorder,
            on_arrival=on_arrival,
            verifier=None if acceptance is None else Verifier(acceptance, draft_seed),
        )  # fmt: skip
    first = 0
    for server, count, _ in scenario.pools():
        replicas = range(first, first + count * cluster.ranks)
        server.check(run, replicas)
        first = replicas.stop
    return run


def _model(fit: StepTimeSource, rng: np.random.Generator | None, factor: float | None) -> StepTime:
    if rng is None:
        return fit.model()
    if factor is not None and isinstance(fit, StepTimeFit):
        return fit.drawn_extrapolated(rng, factor)
    return fit.drawn(rng)


def _pools(scenario: Scenario, models: list[StepTime]) -> "list[Pool]":
    from servetwin.sim.core.pools import Pool

    cluster = scenario.cluster
    if cluster.splits and len(models) > 2:
        raise PolicyError("a prefill/decode split takes at most two profiles: one per pool")
    pools = []
    for number, (profile, count, role) in enumerate(scenario.pools()):
        model, policies = models[min(number, len(models) - 1)], scenario.policies
        if policies.kv_tokens == scenario.profile.policy_config().kv_tokens:  # it has not been set
            policies = replace(policies, kv_tokens=profile.policy_config().kv_tokens)
        fit = profile.step_time(build_scheduler(policies).memory.layout)
        noise, acceptance = fit.noise_factors(), profile.acceptance
        ranks = cluster.ranks
        pool = Pool(policies, model, count, role, noise, acceptance=acceptance, ranks=ranks)
        pools.append(pool)
    return pools


def _link(scenario: Scenario) -> KVLink:
    if not scenario.cluster.splits:
        return KVLink()
    cluster, bytes_per_token = scenario.cluster, scenario.profile.kv_bytes_per_token()
    return KVLink.of(bytes_per_token, cluster.link_bytes_per_s, cluster.link_latency_s)


def devices(scenario: Scenario) -> Mapping[str, int]:
    """Return how many devices all servers of a scenario have, by name."""
    counts = Counter[str]()
    for server in scenario.servers():
        name, count = devices_of(server)
        counts[name] += count
    return dict(counts)


def devices_of(server: ServerModel) -> tuple[str, int]:
    """Return the name of a server's device, and how many it has: more than 1 where it is split.

    The name is that of the catalogue if it is known there. A profile is of one device unless its
    facts of the engine have ``devices``.
    """
    if isinstance(server, Profile):
        name = server.engine.get("device") or server.machine.get("processor") or ""
        return _known(str(name)) or UNKNOWN_DEVICE, int(server.engine.get("devices", 1))
    from servetwin.sim.step_times.roofline.server import RooflineServer
    from servetwin.sim.step_times.tables import TableProfile

    if isinstance(server, RooflineServer):
        deployment = server.deployment
        return deployment.hardware.name, deployment.parallel.devices
    if isinstance(server, TableProfile):
        return server.device or UNKNOWN_DEVICE, server.devices
    return UNKNOWN_DEVICE, 1


@cache
def _known(name: str) -> str:
    """Return the longest name of the catalogue whose parts are all in a text, else the text."""
    squeezed = "".join(name.lower().split())
    fitting = [n for n in shipped_hardware() if all(part in squeezed for part in n.split("-"))]
    return max(fitting, key=len, default=name.partition(",")[0])
