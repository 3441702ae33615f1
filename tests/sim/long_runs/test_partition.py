"""What cannot be divided is one line with the key."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from servetwin.policies.build import build_router
from servetwin.policies.registry import ROUTERS
from servetwin.policies.routers.replica_loads import ReplicaLoads, RouterConfig
from servetwin.policies.routers.routing import is_blind
from servetwin.sim.experiments.scenario import ClusterConfig, Scenario
from servetwin.sim.long_runs.partitioned_run import (
    BLIND_NAMES,
    Part,
    joined,
    parts_of,
    require_partitionable,
)
from servetwin.workloads.errors import PolicyError
from tests.support.streamed_runs import NOISY, WITHOUT_NOISE

SINGLE = Scenario(WITHOUT_NOISE.policy_config(), WITHOUT_NOISE)


def cluster(**settings: Any) -> Scenario:
    return replace(SINGLE, cluster=ClusterConfig(**{"replicas": 3, **settings}))


def policies(**settings: Any) -> Scenario:
    return replace(SINGLE, policies=replace(SINGLE.policies, **settings))


def test_the_routers_of_partitions_are_those_that_read_no_loads() -> None:
    rng = np.random.default_rng(0)
    routers = {name: build_router(ReplicaLoads([1.0]), RouterConfig(name), rng) for name in ROUTERS}
    assert [name for name, router in routers.items() if is_blind(router)] == list(BLIND_NAMES)


@pytest.mark.parametrize(
    ("scenario", "said"),
    [
        (cluster(router="least-tokens"), "router: 'least-tokens' looks at the state"),
        (cluster(router="least-outstanding"), "router: 'least-outstanding' looks at the state"),
        (cluster(router="power-of-two"), "router: 'power-of-two' looks at the state"),
        (cluster(router="prefix-affinity"), "router: 'prefix-affinity' looks at the state"),
        (
            replace(SINGLE, cluster=ClusterConfig(prefill_replicas=1, decode_replicas=1)),
            "prefill_replicas: prompts and decodes",
        ),
        (policies(prefix_cache=True), "prefix_cache: the cache outlasts"),
        (policies(queue_order="fair"), "queue_order: 'fair' remembers"),
        (replace(SINGLE, profile=NOISY), "profile: base-cpu has noise"),
        (policies(batching="mine.py:Mine"), "batching: 'mine.py:Mine' may remember"),
    ],
)
def test_what_depends_on_what_was_before_is_refused(scenario: Scenario, said: str) -> None:
    with pytest.raises(PolicyError, match=f"^--partitions: {said}.*; leave --partitions out$"):
        require_partitionable(scenario)


@pytest.mark.parametrize("router", ["round-robin", "random", "session-affinity"])
def test_routers_that_look_at_no_state_may_be_divided(router: str) -> None:
    require_partitionable(cluster(router=router))
    require_partitionable(replace(cluster(router=router), profile=NOISY))


def test_replicas_are_dealt_out_and_time_is_cut() -> None:
    shares = [frozenset({0, 2}), frozenset({1})]
    assert parts_of(cluster(), 9, [4], 2) == [Part(0, 9, share) for share in shares]
    assert len(parts_of(cluster(), 9, [], 50)) == 3
    assert parts_of(SINGLE, 9, [4, 6], 50) == [Part(0, 4), Part(4, 6), Part(6, 9)]


def test_parts_without_an_empty_moment_between_them_are_joined() -> None:
    one, two, three = parts = [Part(0, 4), Part(4, 6), Part(6, 9)]
    assert joined(parts, [True, False]) == [[one], [two, three]]
