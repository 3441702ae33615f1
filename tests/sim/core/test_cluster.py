"""Many replicas: exact as one, whatever the router, the pools and the links."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import Scheduler
from servetwin.policies.registry import ROUTERS
from servetwin.policies.routers.replica_loads import RouterConfig
from servetwin.sim.core.cluster import simulate_cluster
from servetwin.sim.core.kv_transfer import KVLink
from servetwin.sim.core.pools import Pool
from servetwin.sim.core.recorder import Recorder
from servetwin.sim.core.simulate import simulate
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.profile import load_profile
from servetwin.sim.step_times.step_time import ApiLatency, LinearStepTime, NoiseSample
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.request import Request
from tests.support.checked import CheckedScheduler, request
from tests.support.effort import examples

STEP_TIME = LinearStepTime.of(
    {
        "constant": 0.010,
        "decode_sequences": 0.001,
        "rows_from_0": 0.0003,
        "decode_context_tokens": 1e-5,
        "prefill_pairs": 1e-6,
    }
)
EQUAL_STEPS = LinearStepTime.of({"constant": 0.01})
ONE_SECOND = LinearStepTime.of({"constant": 1.0})
SMALL = PolicyConfig(
    kv_tokens=96, block_tokens=4, max_model_len=70, max_seqs=3, token_budget=20, prefix_cache=True
)
NOISE = NoiseSample(np.array([0.9, 1.0, 1.3]))


@st.composite
def workloads(draw: st.DrawFn) -> list[Request]:
    """Up to 20 requests: ties, shared prefixes of 4-token blocks, followers."""
    requests: list[Request] = []
    now_s = 0.0
    for index in range(draw(st.integers(1, 20))):
        now_s += draw(st.sampled_from([0.0, 0.01, 0.02, 0.05, 0.3]))
        prompt = draw(st.integers(1, 40))
        family = draw(st.integers(0, 2))
        ids = tuple(100 * family + j for j in range(prompt // 4)) if family else ()
        own = request(str(index), now_s, prompt, draw(st.integers(1, 30)), ids)
        parent = draw(st.sampled_from([None, *range(index)]))
        if parent is not None and draw(st.booleans()):
            delay_s = draw(st.sampled_from([0.0, 0.01, 0.1]))
            own = replace(own, parent_ids=(str(parent),), delay_s=delay_s)
        requests.append(own)
    return requests


class Checked:
    """Checked schedulers, and the laws at the end."""

    def __init__(self) -> None:
        self.schedulers: list[CheckedScheduler] = []

    def __call__(self, config: PolicyConfig) -> Scheduler:
        self.schedulers.append(CheckedScheduler(config))
        return self.schedulers[-1]

    def check_empty(self) -> None:
        for scheduler in self.schedulers:
            assert scheduler.load()[:2] == (0, 0), "something is left over"
            usage = scheduler.memory.usage([])
            assert usage.live_tokens == usage.reserved_tokens == 0


def check_stamps(run: Run, requests: list[Request]) -> None:
    frame = run.requests
    assert sorted(frame["request_id"]) == sorted(r.request_id for r in requests)
    assert set(frame["status"]) <= {"finished", "refused", "cancelled"}
    done = frame[frame["status"] == "finished"]
    asked = {r.request_id: r.output_tokens for r in requests}
    assert [asked[name] for name in done["request_id"]] == done["output_tokens"].tolist()
    assert (done["first_token_s"] > done["scheduled_s"]).all()
    assert (done["last_token_s"] >= done["first_token_s"]).all()
    assert (frame["queue_s"].dropna() >= 0).all()


@given(requests=workloads(), queue_limit=st.sampled_from([None, 0, 2]))
def test_a_cluster_of_one_is_exactly_one_server(
    requests: list[Request], queue_limit: int | None
) -> None:
    config = replace(SMALL, queue_limit=queue_limit)
    api = ApiLatency(0.003, 0.0001, 0.002, 0.0001)
    alone = simulate(requests, CheckedScheduler(config), STEP_TIME, api=api)
    pools = [Pool(config, STEP_TIME)]
    cluster = simulate_cluster(
        requests, pools, recorder=Recorder(api), closed_loop=False, build=CheckedScheduler
    )
    assert cluster.requests.equals(alone.requests)
    assert cluster.extra["simulation"]["steps"] == alone.extra["simulation"]["steps"]


BATCHINGS = ["static", "insertion", "continuous", "prefill-first", "chunked"]


@pytest.mark.parametrize("name", ROUTERS)
@settings(max_examples=examples(12))
@given(
    requests=workloads(),
    staleness_s=st.sampled_from([0.0, 0.02]),
    batching=st.sampled_from(BATCHINGS),
    step_time=st.sampled_from([STEP_TIME, EQUAL_STEPS]),
    queue_limit=st.sampled_from([None, 1]),
    closed_loop=st.booleans(),
)
def test_macro_steps_equal_single_steps_on_many_replicas(
    name: str,
    requests: list[Request],
    staleness_s: float,
    batching: str,
    step_time: LinearStepTime,
    queue_limit: int | None,
    closed_loop: bool,
) -> None:
    config = replace(SMALL, batching=batching, queue_limit=queue_limit)
    noise = NOISE if step_time is STEP_TIME else None
    pools = [
        Pool(config, step_time, 2, noise=noise),
        Pool(replace(config, kv_tokens=72), step_time.scaled(0.5), noise=noise, speed=2.0),
    ]
    runs = []
    for macro in (True, False):
        checked = Checked()
        router = RouterConfig(name, staleness_s, imbalance_requests=1)
        run = simulate_cluster(
            requests, pools, router, closed_loop=closed_loop, macro=macro, build=checked
        )
        runs.append(run)
        checked.check_empty()
        check_stamps(runs[-1], requests)
    assert runs[0].requests.equals(runs[1].requests)
    assert runs[0].extra["simulation"]["steps"] == runs[1].extra["simulation"]["steps"]


@settings(max_examples=examples(50))
@given(
    requests=workloads(),
    link=st.sampled_from([KVLink(), KVLink(0.02), KVLink(0.005, 0.001)]),
    batching=st.sampled_from(BATCHINGS[1:]),
    step_time=st.sampled_from([STEP_TIME, EQUAL_STEPS]),
    decode_router=st.sampled_from(["least-outstanding", "power-of-two"]),
    limits=st.sampled_from([{}, {"queue_limit": 0}, {"preemption": "swap", "host_kv_tokens": 40}]),
    closed_loop=st.booleans(),
)
def test_prefill_and_decode_pools_keep_every_law(
    requests: list[Request],
    link: KVLink,
    batching: str,
    step_time: LinearStepTime,
    decode_router: str,
    limits: dict[str, int | str],
    closed_loop: bool,
) -> None:
    config = replace(SMALL, batching=batching, **limits)  # type: ignore[arg-type]
    pools = [Pool(config, step_time, 2, "prefill"), Pool(config, step_time, 2, "decode")]
    router, decode_router_ = RouterConfig("least-tokens"), RouterConfig(decode_router)
    runs, recorders = [], []
    for macro in (True, False):
        checked, recorder = Checked(), Recorder()
        run = simulate_cluster(
            requests, pools, router, decode_router_, link,
            recorder=recorder, closed_loop=closed_loop, macro=macro, build=checked,
        )  # fmt: skip
        checked.check_empty()
        check_stamps(run, requests)
        check_handovers(run, recorder, link)
        runs.append(run)
        recorders.append(recorder)
    assert runs[0].requests.equals(runs[1].requests)
    assert sorted(recorders[0].handovers) == sorted(recorders[1].handovers)


def check_handovers(run: Run, recorder: Recorder, link: KVLink) -> None:
    frame = run.requests
    handed = {int(row): stamps for row, *stamps in recorder.handovers}
    assert len(handed) == len(recorder.handovers), "a request was handed over twice"
    for row, (status, first_s) in enumerate(
        zip(frame["status"], frame["first_token_s"], strict=True)
    ):
        asked = recorder.requests[row]
        assert (row in handed) == (asked.output_tokens > 1 and first_s == first_s)
        if row not in handed:
            continue
        prefill_end_s, transfer_end_s, *decode_start_s = handed[row]
        least_s = link.latency_s + asked.prompt_tokens * link.token_s
        assert prefill_end_s == first_s
        assert transfer_end_s >= prefill_end_s + least_s - 1e-12
        assert len(decode_start_s) == (status == "finished")
        assert all(start_s >= transfer_end_s for start_s in decode_start_s)
        assert frame["replica"][row] >= 2


def test_a_handover_step_by_step() -> None:
    """Two prompts end at 1 s; 8 and 4 tokens queue on one link of 0.25 s a token, 0.5 s away."""
    pools = [Pool(PolicyConfig(), ONE_SECOND, role=role) for role in ("prefill", "decode")]
    requests = [
        request("a", prompt=8, output=3),
        request("b", prompt=4, output=2),
        request("c", prompt=4, output=1),
    ]
    recorder = Recorder()
    run = simulate_cluster(requests, pools, link=KVLink(0.5, 0.25), recorder=recorder)
    assert recorder.handovers == [
        [0, 1.0, pytest.approx(3.5), pytest.approx(3.5)],
        [1, 1.0, pytest.approx(4.5), pytest.approx(4.5)],
    ]
    frame = run.requests
    assert frame["first_token_s"].tolist() == [1.0, 1.0, 1.0]
    assert frame["last_token_s"].tolist() == pytest.approx([5.5, 5.5, 1.0])
    assert frame["replica"].tolist() == [1, 1, 0]
    assert frame["output_tokens"].tolist() == [3, 2, 1]


def test_links_of_two_prefill_replicas_do_not_wait_for_each_other() -> None:
    pools = [Pool(PolicyConfig(), ONE_SECOND, 2, "prefill"), Pool(SMALL, ONE_SECOND, 1, "decode")]
    recorder = Recorder()
    simulate_cluster(
        [request("a"), request("b")], pools, link=KVLink.of(1e6, 1e6), recorder=recorder
    )
    assert [row[2] for row in recorder.handovers] == pytest.approx([5.0, 5.0])


def test_a_prompt_that_no_decode_replica_can_hold_is_refused_after_its_first_token() -> None:
    pools = [Pool(PolicyConfig(), ONE_SECOND, role="prefill"), Pool(SMALL, ONE_SECOND, 1, "decode")]
    requests = [
        request("long", prompt=200, output=2),
        replace(request("b"), parent_ids=("long",), delay_s=0.0),
    ]
    frame = simulate_cluster(requests, pools).requests
    assert frame["status"].tolist() == ["refused", "cancelled"]
    assert "too_long" in frame["error"][0]
    assert frame["first_token_s"][0] == 1.0


def test_requests_spread_over_pools_by_load_and_speed() -> None:
    fast = Pool(PolicyConfig(), ONE_SECOND.scaled(0.5), speed=2.0)
    slow = Pool(PolicyConfig(), ONE_SECOND, 2)
    requests = [request(str(i), 0.001 * i, output=9) for i in range(5)]
    run = simulate_cluster(requests, [slow, fast], RouterConfig("least-outstanding"))
    assert run.requests["replica"].tolist() == [2, 0, 1, 2, 2]
    assert run.requests["e2e_s"][0] == 4.5  # nine steps of half a second
    assert set(run.steps["replica"]) == {0, 1, 2}


def test_prefix_affinity_hits_more_than_round_robin() -> None:
    config = PolicyConfig(prefix_cache=True, block_tokens=4)
    requests = [
        request(f"{turn}.{user}", 10.0 * turn + 0.1 * user, 4 * (turn + 1), 2,
                tuple(100 * user + j for j in range(turn + 1)))
        for turn in range(8)
        for user in range(5)
    ]  # fmt: skip
    hits = {
        name: simulate_cluster(
            requests, [Pool(config, EQUAL_STEPS, 4)], RouterConfig(name)
        ).requests["cached_tokens"].sum()
        for name in ("prefix-affinity", "round-robin")
    }  # fmt: skip
    assert hits["prefix-affinity"] == 5 * sum(4 * turn for turn in range(1, 8))
    assert hits["round-robin"] < hits["prefix-affinity"] / 2


@pytest.mark.parametrize("name", ROUTERS)
def test_the_same_seed_gives_the_same_bytes(name: str) -> None:
    requests = [request(str(i), i * 0.01, 5 + i % 7, 3 + i % 5) for i in range(60)]
    pools = [Pool(SMALL, STEP_TIME, 4, noise=NOISE)]
    first, again, other = (
        simulate_cluster(requests, pools, RouterConfig(name), seed=seed).requests.to_csv()
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_the_routers_of_both_pools_draw_apart() -> None:
    """Requests of one token end where they began: that is what the first router drew."""
    pools = [Pool(PolicyConfig(), EQUAL_STEPS, 4, role) for role in ("prefill", "decode")]
    router, drawn = RouterConfig("random"), []
    for output in (1, 2):
        requests = [request(str(i), 10.0 * i, output=output) for i in range(40)]
        run = simulate_cluster(requests, pools, router, router)
        drawn.append(run.requests["replica"].tolist())
    front, back = drawn
    assert set(front) == set(range(4))
    assert set(back) == set(range(4, 8))
    assert [place - 4 for place in back] != front


def test_one_more_replica_leaves_the_noise_of_the_others() -> None:
    """It is so slow, by its word, that nothing goes there."""
    requests = [request(str(i), i * 0.01, 5 + i % 7, 3 + i % 5) for i in range(60)]
    pools = [Pool(SMALL, STEP_TIME, 2, noise=NOISE)]
    idle = Pool(SMALL, STEP_TIME, noise=NOISE, speed=1e-9)
    router = RouterConfig("least-tokens")
    two, three = (simulate_cluster(requests, p, router) for p in (pools, [*pools, idle]))
    assert two.requests.equals(three.requests)


def test_replicas_of_a_profile_have_noise_of_their_own() -> None:
    fit = load_profile("base-cpu").step_time("paged")
    pool = Pool(PolicyConfig(), fit.model(), replicas=2, noise=fit.noise_factors())
    run = simulate_cluster([request("a"), request("b")], [pool])
    assert (run.requests["status"] == "finished").all()
    assert run.requests["ttft_s"].nunique() == 2  # each replica has its own noise


PREFILL, DECODE = (Pool(SMALL, ONE_SECOND, role=role) for role in ("prefill", "decode"))


@pytest.mark.parametrize(
    "pools",
    [[], [PREFILL], [DECODE], [PREFILL, DECODE, Pool(SMALL, ONE_SECOND)]],
    ids=["none", "prefill", "decode", "mixed"],
)
def test_pools_that_make_no_server_are_refused(pools: list[Pool]) -> None:
    with pytest.raises(PolicyError, match=r"^pools: .*all must be 'serve'"):
        simulate_cluster([], pools)


def test_more_replicas_than_a_run_can_number_are_refused_before_one_is_built() -> None:
    with pytest.raises(PolicyError, match=r"^replicas: 2,147,483,649 .* at most 2,147,483,6"):
        simulate_cluster([], [Pool(SMALL, ONE_SECOND, 1 << 31), Pool(SMALL, ONE_SECOND)])


@pytest.mark.slow
def test_more_replicas_than_16_bits_number_have_their_numbers() -> None:
    replicas = (1 << 15) + 8
    requests = [request(str(i), 0.01 * i) for i in range(replicas)]
    run = simulate_cluster(requests, [Pool(SMALL, EQUAL_STEPS, replicas)])
    assert run.requests["replica"].tolist() == list(range(replicas))
    assert set(run.steps["replica"]) == set(range(replicas))


def test_impossible_pools_and_links_are_named() -> None:
    with pytest.raises(PolicyError, match=r"^replicas: 0 "):
        Pool(SMALL, ONE_SECOND, 0)
    with pytest.raises(PolicyError, match="'static' cannot take in prompts"):
        Pool(replace(SMALL, batching="static"), ONE_SECOND, role="decode")
    with pytest.raises(PolicyError, match="latency_s must be finite"):
        KVLink(-1.0)
    with pytest.raises(PolicyError, match="bytes_per_s must be above 0"):
        KVLink.of(1.0, 0.0)


def test_a_router_that_names_no_replica_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "class Far:\n"
        "    def __init__(self, fleet, config, rng): pass\n"
        "    def choose(self, request, now_s): return 7\n"
    )
    with pytest.raises(PolicyError, match=r"Far chose replica 7 for request 'a'.*0 to 1"):
        simulate_cluster([request("a")], [Pool(SMALL, ONE_SECOND, 2)], RouterConfig(f"{path}:Far"))
