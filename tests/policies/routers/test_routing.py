"""Routers choose by the loads they are given, and these are those of the last report."""

from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, chisquare

from servetwin.policies.build import build_router
from servetwin.policies.registry import ROUTERS
from servetwin.policies.routers.replica_loads import ReplicaLoads, RouterConfig
from servetwin.policies.routers.router import Router
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.request import Request
from tests.support.call_counts import calls_of
from tests.support.checked import request


def router_of(config: RouterConfig, replicas: ReplicaLoads, seed: int = 0) -> Router:
    return build_router(replicas, config, np.random.default_rng(seed))


def send(router: Router, replicas: ReplicaLoads, sent: Request, now_s: float = 0.0) -> int:
    place = router.choose(sent, now_s)
    replicas.sent(place, sent.total_tokens, now_s)
    return place


@pytest.mark.parametrize(
    ("name", "speeds", "prompts", "places"),
    [
        ("round-robin", (1, 1, 1), [4, 4, 4, 4, 4], [0, 1, 2, 0, 1]),
        ("least-outstanding", (1, 1, 1), [90, 4, 4, 4], [0, 1, 2, 0]),
        ("least-outstanding", (2, 1), [4, 4, 4, 4, 4, 4], [0, 1, 0, 0, 1, 0]),
        ("least-tokens", (1, 1), [90, 4, 4, 4, 90, 4], [0, 1, 1, 1, 1, 0]),
        ("least-tokens", (10, 1), [8, 8, 8], [0, 0, 0]),
        ("power-of-two", (1, 1), [4, 4], None),
        ("prefix-affinity", (1, 1, 1), [4, 4, 4, 4], [0, 1, 2, 0]),
    ],
)
def test_choices_while_nothing_ends(
    name: str, speeds: tuple[float, ...], prompts: list[int], places: list[int] | None
) -> None:
    replicas = ReplicaLoads(speeds)
    router = router_of(RouterConfig(name), replicas)
    chosen = [
        send(router, replicas, request(str(i), prompt=prompt, output=2))
        for i, prompt in enumerate(prompts)
    ]
    if places is None:  # two random ones of two are both: the second goes to the other
        assert sorted(chosen) == [0, 1]
    else:
        assert chosen == places


def test_vllm_weighs_the_queue_four_times_and_counts_its_own_until_the_next_report() -> None:
    loads = [(9, 0, 0), (4, 1, 0), (0, 3, 0)]  # running, waiting, free tokens
    replicas = ReplicaLoads((1, 1, 1), staleness_s=0.1)
    replicas.read_load = loads.__getitem__
    router = router_of(RouterConfig("vllm-dp"), replicas)
    chosen = [send(router, replicas, request(str(i)), 0.01 * i) for i in range(4)]
    assert chosen == [1, 0, 1, 2], "scores 9 8 12, 9 12 12, 13 12 12, 13 16 12"
    loads[0] = (0, 0, 0)
    assert send(router, replicas, request("stale"), 0.09) == 0, "13 16 16"
    assert send(router, replicas, request("new"), 0.1) == 0


def test_kv_aware_weighs_what_a_cache_holds_against_what_is_to_be_computed() -> None:
    """A prompt of 90 tokens and 10 of output; 60 of it are at place 1, which has 50 or 70."""
    for outstanding, place in ((50, 1), (70, 0)):
        replicas = ReplicaLoads((1, 1))
        replicas.read_hits = lambda _: [0, 60]
        replicas.sent(1, outstanding, 0.0)
        router = router_of(RouterConfig("kv-aware"), replicas)
        assert router.choose(request("a", prompt=90, output=10), 0.0) == place


def test_what_has_ended_counts_no_more() -> None:
    replicas = ReplicaLoads((1, 1))
    router = router_of(RouterConfig("least-tokens"), replicas)
    first = request("a", prompt=90)
    assert send(router, replicas, first) == 0
    replicas.ended(0, first.total_tokens, 1.0)
    assert send(router, replicas, request("b"), 1.0) == 1
    assert send(router, replicas, request("c"), 1.0) == 0


@given(loads=st.lists(st.integers(0, 9), min_size=2, max_size=6), seed=st.integers(0, 99))
def test_power_of_two_never_takes_the_only_busiest(loads: list[int], seed: int) -> None:
    replicas = ReplicaLoads([1.0] * len(loads))
    for place, load in enumerate(loads):
        for _ in range(load):
            replicas.sent(place, 1, 0.0)
    place = router_of(RouterConfig("power-of-two"), replicas, seed).choose(request("a"), 0.0)
    others = loads[:place] + loads[place + 1 :]
    assert loads[place] <= max(others)


@pytest.mark.parametrize(
    ("speeds", "loads", "fewer"),
    [((4, 1), (3, 1), 0), ((4, 1), (7, 0), 1), ((1, 1), (3, 1), 1)],
)
def test_power_of_two_compares_loads_by_speed(
    speeds: tuple[float, ...], loads: tuple[int, ...], fewer: int
) -> None:
    """With the newcomer: 4 of 4 against 2 of 1; 8 of 4 against 1 of 1; 4 against 2."""
    replicas = ReplicaLoads(speeds)
    for place, load in enumerate(loads):
        for _ in range(load):
            replicas.sent(place, 1, 0.0)
    router = router_of(RouterConfig("power-of-two"), replicas)
    assert {router.choose(request("a"), 0.0) for _ in range(20)} == {fewer}


def test_least_tokens_counts_the_output_of_the_newcomer_too() -> None:
    """100 + 10 tokens at speed 10 against 0 + 10 at speed 1: 11 against 10."""
    replicas = ReplicaLoads((10, 1))
    replicas.sent(0, 100, 0.0)
    for output, place in ((6, 1), (20, 0)):
        router = router_of(RouterConfig("least-tokens"), replicas)
        assert router.choose(request("a", prompt=4, output=output), 0.0) == place


@pytest.mark.parametrize("name", ["random", "power-of-two"])
def test_equal_replicas_have_equal_chances(name: str) -> None:
    router = router_of(RouterConfig(name), ReplicaLoads([1.0] * 5))
    chosen = [router.choose(request("a"), 0.0) for _ in range(5000)]
    assert chisquare(np.bincount(chosen, minlength=5)).pvalue > 0.001


def by_name(name: str, session: str | None, tenant: str | None) -> Request:
    return Request(name, 0.0, 4, 2, session_id=session, tenant=tenant)


def test_a_session_stays_and_else_its_tenant_does() -> None:
    router = router_of(RouterConfig("session-affinity"), ReplicaLoads([1.0] * 50))
    session = {router.choose(by_name(str(i), "s", str(i)), 0.0) for i in range(20)}
    tenant = {router.choose(by_name(str(i), None, "s"), 0.0) for i in range(20)}
    alone = {router.choose(by_name(str(i), None, None), 0.0) for i in range(20)}
    assert session == tenant
    assert len(session) == 1
    assert len(alone) > 5


def test_one_more_replica_takes_its_share_of_the_sessions_and_moves_no_other() -> None:
    sessions = [by_name("r", f"session-{i}", None) for i in range(4000)]
    config = RouterConfig("session-affinity")
    before, after = (
        [router_of(config, ReplicaLoads([1.0] * n)).choose(s, 0.0) for s in sessions]
        for n in (4, 5)
    )
    moved = [new for old, new in zip(before, after, strict=True) if new != old]
    assert set(moved) == {4}
    low, high = binom.interval(0.999, len(sessions), 1 / 5)
    assert low <= len(moved) <= high


@given(session=st.text(min_size=1))
def test_a_session_moves_only_to_the_newest_replica(session: str) -> None:
    config = RouterConfig("session-affinity")
    asked = by_name("r", session, None)
    places = [
        router_of(config, ReplicaLoads([1.0] * count)).choose(asked, 0.0) for count in range(1, 80)
    ]
    for newest, (before, after) in enumerate(pairwise(places), start=1):
        assert after in (before, newest)


@pytest.mark.parametrize("replicas", [3, 60])
def test_sessions_are_spread_evenly(replicas: int) -> None:
    router = router_of(RouterConfig("session-affinity"), ReplicaLoads([1.0] * replicas))
    chosen = [router.choose(by_name("r", f"session-{i}", None), 0.0) for i in range(9000)]
    assert chisquare(np.bincount(chosen, minlength=replicas)).pvalue > 0.001


def test_a_session_is_hashed_about_once_among_many_replicas() -> None:
    """Its places are a growing series of about log(replicas) draws, 16 from each hash."""
    router = router_of(RouterConfig("session-affinity"), ReplicaLoads([1.0] * 10_000))
    sessions = [by_name("r", f"session-{i}", None) for i in range(500)]
    calls = calls_of(lambda: [router.choose(session, 0.0) for session in sessions])
    assert calls["digest"] < 550


def test_a_prompt_follows_its_longest_known_prefix() -> None:
    replicas = ReplicaLoads((1, 1, 1))
    router = router_of(RouterConfig("prefix-affinity"), replicas)
    short = request("a", prompt=8, ids=(1, 2))
    longer = request("b", prompt=40, ids=(1, 3, 4, 5, 6, 7, 8, 9, 10, 11))
    assert send(router, replicas, short) == 0
    assert send(router, replicas, longer) == 1  # one block of ten is too little to follow
    assert send(router, replicas, request("c", prompt=12, ids=(1, 2, 12))) == 0
    assert send(router, replicas, request("d", prompt=12, ids=(1, 3, 13))) == 1
    assert send(router, replicas, request("e", prompt=4)) == 2


def test_balance_comes_before_affinity() -> None:
    config = RouterConfig("prefix-affinity", imbalance_requests=3, imbalance_ratio=1.5)
    replicas = ReplicaLoads((1, 1))
    router = router_of(config, replicas)
    chosen = [send(router, replicas, request(str(i), ids=(1,))) for i in range(7)]
    assert chosen == [0, 0, 0, 0, 1, 1, 1]  # four apart, then with the last holder again


def test_the_prefix_memory_is_bounded_and_forgets_continuations_first() -> None:
    config = RouterConfig("prefix-affinity", remembered_blocks=3, prefix_share=0.0)
    replicas = ReplicaLoads((1, 1, 1))
    router = router_of(config, replicas)
    assert send(router, replicas, request("a", prompt=8, ids=(1, 2))) == 0
    assert send(router, replicas, request("b", prompt=8, ids=(3, 4))) == 1
    assert send(router, replicas, request("c", prompt=8, ids=(1, 5))) == 0  # 2 is forgotten, 1 not
    assert send(router, replicas, request("d", prompt=8, ids=(3, 6))) == 1


@given(
    events=st.lists(
        st.tuples(st.sampled_from([0.0, 0.125, 0.25, 0.5, 1.0, 3.0]), st.integers(0, 2)),
        max_size=30,
    ),
    staleness_s=st.sampled_from([0.25, 0.5, 1.0, 1.75]),
    after_s=st.sampled_from([0.0, 0.125, 0.5, 2.0]),
)
def test_stale_loads_are_those_at_the_last_multiple(
    events: list[tuple[float, int]], staleness_s: float, after_s: float
) -> None:
    replicas = ReplicaLoads((1, 1, 1), staleness_s)
    now_s = 0.0
    sent: list[tuple[float, int]] = []
    for gap_s, place in events:
        now_s += gap_s
        replicas.sent(place, 10, now_s)
        sent.append((now_s, place))
    now_s += after_s
    report_s = now_s // staleness_s * staleness_s
    seen = [sum(at == place and when < report_s for when, at in sent) for place in range(3)]
    assert list(replicas.requests(now_s)) == seen
    assert list(replicas.tokens(now_s)) == [10 * count for count in seen]


def test_stale_signals_herd_and_true_ones_spread() -> None:
    spread = []
    for staleness_s in (0.0, 1.0):
        replicas = ReplicaLoads((1, 1, 1, 1), staleness_s)
        replicas.sent(2, 1, 0.0)
        replicas.requests(1.0)
        router = router_of(RouterConfig("least-tokens", staleness_s), replicas)
        replicas.sent(0, 1, 1.0)
        replicas.sent(1, 2, 1.0)
        replicas.sent(3, 3, 1.0)
        spread.append([send(router, replicas, request(str(i)), 1.5) for i in range(4)])
    true, stale = spread
    assert len(set(true)) == 4
    assert 2 not in stale  # the report says that it alone is busy


@pytest.mark.parametrize("name", ROUTERS)
def test_one_replica_gets_everything(name: str) -> None:
    router = router_of(RouterConfig(name), ReplicaLoads((1,)))
    assert {router.choose(request(str(i), ids=(i,)), float(i)) for i in range(5)} == {0}


def serve(router: Router, loads: ReplicaLoads, requests: list[Request]) -> None:
    for sent in requests:
        loads.ended(send(router, loads, sent), sent.total_tokens, 0.0)


@pytest.mark.parametrize("name", sorted(ROUTERS.keys() - {"vllm-dp", "kv-aware"}))  # read all
def test_a_request_makes_as_many_calls_among_ten_thousand_replicas(name: str) -> None:
    """``test_load_table`` counts what one call looks at."""
    calls = []
    for replicas in (10, 10_000):
        loads = ReplicaLoads([1.0] * replicas)
        router = router_of(RouterConfig(name), loads)
        requests = [by_name(str(i), f"session-{i}", None) for i in range(300)]
        send(router, loads, request("first"))

        calls.append(calls_of(partial(serve, router, loads, requests)).total())
    assert calls[1] <= 1.5 * calls[0] + 100  # a compiled router shows no calls


@pytest.mark.parametrize("name", ROUTERS)
def test_the_same_seed_gives_the_same_choices(name: str) -> None:
    chosen = []
    for _ in range(2):
        replicas = ReplicaLoads((1, 2, 3), 0.5)
        router = router_of(RouterConfig(name, 0.5), replicas, seed=7)
        requests = [request(str(i), prompt=4 + i % 9, ids=(i % 5,)) for i in range(60)]
        chosen.append([send(router, replicas, r, 0.1 * i) for i, r in enumerate(requests)])
    assert chosen[0] == chosen[1]
    assert set(chosen[0]) <= {0, 1, 2}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("round-robbin", "router: unknown router 'round-robbin'; did you mean 'round-robin'?"),
        ("zzz", f"known are {', '.join(sorted(ROUTERS))}"),
    ],
)
def test_an_unknown_router_is_named(name: str, message: str) -> None:
    with pytest.raises(PolicyError, match=message.replace("?", r"\?")):
        router_of(RouterConfig(name), ReplicaLoads((1,)))


def test_a_router_of_ones_own_is_loaded_by_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "class Last:\n"
        "    def __init__(self, replicas, config, rng):\n"
        "        self.replicas = replicas\n"
        "    def choose(self, request, now_s):\n"
        "        return len(self.replicas) - 1\n"
    )
    assert (
        router_of(RouterConfig(f"{path}:Last"), ReplicaLoads((1, 1))).choose(request("a"), 0.0) == 1
    )


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("staleness_s", -1.0),
        ("staleness_s", float("inf")),
        ("staleness_s", float("nan")),
        ("prefix_share", 1.5),
        ("imbalance_requests", -1),
        ("imbalance_ratio", -0.5),
        ("remembered_blocks", -1),
    ],
)
def test_an_impossible_setting_is_named(setting: str, value: float) -> None:
    with pytest.raises(PolicyError, match=f"^{setting}: "):
        RouterConfig(**{setting: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan"), float("inf")])
def test_an_impossible_speed_is_named(speed: float) -> None:
    with pytest.raises(PolicyError, match=r"^speed: "):
        ReplicaLoads((1.0, speed))
