"""When a prompt follows its prefix, to the last block and the last request."""

import numpy as np
import pytest

from servetwin.policies.routers.prefix_affinity import PrefixAffinity
from servetwin.policies.routers.replica_loads import ReplicaLoads, RouterConfig
from tests.support.checked import request


def router(loads: ReplicaLoads, **settings: float) -> PrefixAffinity:
    config = RouterConfig("prefix-affinity", **settings)  # type: ignore[arg-type]
    return PrefixAffinity(loads, config, np.random.default_rng(0))


@pytest.mark.parametrize(("prompt", "place"), [(8, 1), (7, 0), (9, 1)])
def test_a_prompt_follows_where_more_than_the_share_is_known(prompt: int, place: int) -> None:
    """Four tokens are known: of 8 that is half and no more, of 7 it is more."""
    loads = ReplicaLoads((1, 1))
    chooser = router(loads, prefix_share=0.5)
    assert chooser.choose(request("a", prompt=4, ids=(1,)), 0.0) == 0
    assert chooser.choose(request("b", prompt=prompt, ids=(1, 2)), 0.0) == place


def test_it_follows_the_replica_that_saw_the_last_known_block() -> None:
    chooser = router(ReplicaLoads((1, 1, 1)), prefix_share=0.9)
    assert chooser.choose(request("a", prompt=8, ids=(1, 2)), 0.0) == 0
    assert chooser.choose(request("b", prompt=40, ids=(1, 3)), 0.0) == 1
    assert chooser.choose(request("c", prompt=8, ids=(1, 2)), 0.0) == 0
    assert chooser.choose(request("d", prompt=8, ids=(1, 3)), 0.0) == 1


@pytest.mark.parametrize(
    ("ahead", "ratio", "place"),
    [
        (3, 1.5, 0),  # three apart is not more than three
        (4, 1.5, 1),
        (4, 3.0, 0),  # 2 + 4 = 6 is not more than 3 times 2
        (5, 3.0, 1),
    ],
)
def test_balance_is_lost_by_difference_and_ratio(ahead: int, ratio: float, place: int) -> None:
    loads = ReplicaLoads((1, 1))
    chooser = router(loads, imbalance_requests=3, imbalance_ratio=ratio)
    assert chooser.choose(request("a", prompt=4, ids=(1,)), 0.0) == 0
    for replica, count in ((0, 2 + ahead), (1, 2)):
        for _ in range(count):
            loads.sent(replica, 1, 0.0)
    assert chooser.choose(request("b", prompt=4, ids=(1,)), 0.0) == place


def test_where_nothing_is_known_the_least_requests_for_the_speed_decide() -> None:
    loads = ReplicaLoads((1, 2))
    chooser = router(loads)
    loads.sent(1, 100, 0.0)
    assert chooser.choose(request("a"), 0.0) == 0
    assert chooser.choose(request("b"), 0.0) == 1


def test_what_is_known_of_replicas_that_stay_moves_with_them() -> None:
    before, after = router(ReplicaLoads([1.0] * 3)), router(ReplicaLoads([1.0] * 2))
    asked = [request(str(n), prompt=8, ids=(10 * n, 10 * n + 1)) for n in range(3)]
    assert [before.choose(one, 0.0) for one in asked] == [0, 1, 2]
    after.take_over(before, [1, -1, 0])
    assert [after.choose(asked[n], 0.0) for n in (0, 2, 0, 2)] == [1, 0, 1, 0]
