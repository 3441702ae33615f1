"""The memory behind the host tier: what it finds, what it costs, and who shares it."""

from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.policies.config import PolicyConfig
from servetwin.policies.kv.host_tier import HostTier
from servetwin.policies.routers.replica_loads import RouterConfig
from servetwin.policies.sequence import Sequence
from servetwin.sim.core.cluster import simulate_cluster
from servetwin.sim.core.pools import Pool
from servetwin.workloads.errors import PolicyError
from tests.support.checked import request
from tests.support.random_runs import STEP_TIME

CONFIG = PolicyConfig(
    kv_tokens=40, block_tokens=4, max_model_len=40, max_seqs=1, prefix_cache=True,
    host_cache_tokens=8, far_cache_tokens=64, far_cache_slowdown=3.0,
)  # fmt: skip


def prompt(*keys: int) -> Sequence:
    return Sequence("s", 0.0, 1000, 1, keys)


def test_what_the_host_gives_up_is_found_behind_it_and_comes_back() -> None:
    tiers = HostTier(1, block_tokens=4, far_blocks=2, far_slowdown=3.0)
    for key in (1, 2, 3):
        tiers.keep(prompt(key), 1)
    loads = [tiers.load(prompt(key), 0, 1) for key in (1, 2, 3, 4)]
    assert loads == [12, 12, 4, 0], "two behind, one in the host, one nowhere"
    tiers.keep(prompt(1), 1)
    assert tiers.load(prompt(1), 0, 1) == 4, "what is used is in the host again"
    assert tiers.load(prompt(3), 0, 1) == 12, "for another"
    tiers.keep(prompt(4), 1)
    assert tiers.find(prompt(2), 0, 1) == 0, "the far memory gave up its oldest"


@given(
    asked=st.lists(st.integers(0, 11), max_size=120),
    near=st.integers(0, 4), far=st.integers(1, 5),
)  # fmt: skip
def test_two_tiers_hold_what_two_caches_of_another_kind_hold(
    asked: list[int], near: int, far: int
) -> None:
    """An exclusive pair of LRU caches is one LRU cache as large as both (stack property)."""
    tiers = HostTier(near, far_blocks=far)
    one: OrderedDict[int, None] = OrderedDict()
    for key in asked:
        hit = tiers.find(prompt(key), 0, 1) == 1
        assert hit == (key in one)
        cost = tiers.load(prompt(key), 0, 1)
        assert cost == hit
        tiers.keep(prompt(key), 1)
        one[key] = None
        one.move_to_end(key)
        if len(one) > near + far:
            one.popitem(last=False)


def asked_in_turn(count: int) -> list:  # type: ignore[type-arg]
    """Prompts of a few families, far apart in time; each has two blocks of its family."""
    families = np.random.default_rng(1).integers(0, 3, count).tolist()
    return [
        request(str(n), 10.0 * n, 13, 2, (10 * family, 10 * family + 1, 1000 + n, 2000 + n))
        for n, family in enumerate(families)
    ]


@pytest.mark.parametrize("macro", [True, False])
def test_servers_that_share_it_find_what_others_wrote(macro: bool) -> None:
    def cached(config: PolicyConfig) -> int:
        pools = [Pool(config, STEP_TIME, replicas=2)]
        run = simulate_cluster(asked_in_turn(12), pools, RouterConfig("round-robin"), macro=macro)
        return int(run.requests["cached_tokens"].sum())

    alone = replace(CONFIG, kv_tokens=16, max_model_len=16)
    shared = replace(alone, far_cache_shared=True)
    plain = replace(alone, far_cache_tokens=0, far_cache_slowdown=8.0)
    assert cached(shared) > cached(alone) > cached(plain)


def test_steps_and_runs_of_steps_are_the_same_to_the_last_bit() -> None:
    pools = [Pool(replace(CONFIG, far_cache_shared=True), STEP_TIME, replicas=3)]
    runs = [simulate_cluster(asked_in_turn(40), pools, macro=macro) for macro in (True, False)]
    assert runs[0].requests.equals(runs[1].requests)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"far_cache_tokens": 8}, "far_cache_tokens: 8 is not possible"),
        ({"far_cache_slowdown": 2.0}, "far_cache_slowdown: 2.0 is not possible"),
        ({"far_cache_shared": True}, "far_cache_shared: true is not possible"),
        (
            {"prefix_cache": True, "far_cache_tokens": 8, "far_cache_slowdown": 0.0},
            "far_cache_slowdown: 0.0 is not possible; it must be a finite number above 0",
        ),
    ],
)
def test_what_cannot_be_is_named(settings: dict[str, object], said: str) -> None:
    with pytest.raises(PolicyError, match=f"^{said}"):
        PolicyConfig(**settings)  # type: ignore[arg-type]
