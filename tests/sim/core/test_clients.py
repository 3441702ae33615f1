"""Clients that wait for an answer before they ask again."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.policies.config import PolicyConfig
from servetwin.policies.routers.replica_loads import RouterConfig
from servetwin.sim.core.cluster import simulate_cluster
from servetwin.sim.core.pools import Pool
from servetwin.sim.core.recorder import Recorder
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.step_time import ApiLatency, FloatArray, LinearStepTime
from servetwin.workloads.errors import TraceError
from servetwin.workloads.generators.generate import WorkloadSpec, generate
from servetwin.workloads.generators.lengths import IntArray
from servetwin.workloads.generators.resampled import sent_by_users
from servetwin.workloads.request import Request
from tests.support.checked import CheckedScheduler, request
from tests.support.effort import REDUCTION, WIDENING
from tests.support.theory.queues import closed_loop

ONE_SECOND = LinearStepTime.of({"constant": 1.0})
REPLICATIONS = 12
T_99_9 = 4.437
"""Two-sided 99.9 % quantile of Student's t with 11 degrees of freedom."""


def follower(
    name: str, parent: str, delay_s: float | None, arrival_s: float = 0.0, output: int = 2
) -> Request:
    return replace(request(name, arrival_s, output=output), parent_ids=(parent,), delay_s=delay_s)


def run_on_one(
    requests: list[Request],
    config: PolicyConfig | None = None,
    *,
    closed_loop: bool = True,
    recorder: Recorder | None = None,
) -> Run:
    pool = Pool(config or PolicyConfig(), ONE_SECOND)
    return simulate_cluster(
        requests, [pool], closed_loop=closed_loop, recorder=recorder, build=CheckedScheduler
    )


def sent_s(run: Run) -> dict[str, float]:
    return dict(zip(run.requests["request_id"], run.requests["scheduled_s"], strict=True))


CHAIN = [
    request("a", 0.5),
    follower("b", "a", 3.0, arrival_s=1.0),
    follower("c", "b", 0.0, arrival_s=2.0),
    follower("d", "a", 0.25, arrival_s=9.0),
]


@pytest.mark.parametrize(
    ("closed_loop", "expected"),
    [
        (True, {"a": 0.5, "d": 2.75, "b": 5.5, "c": 7.5}),  # each answer takes 2 s
        (False, {"a": 0.5, "b": 1.0, "c": 2.0, "d": 9.0}),
    ],
)
def test_followers_are_sent_after_the_answer_or_at_their_stamps(
    closed_loop: bool, expected: dict[str, float]
) -> None:
    sent = sent_s(run_on_one(CHAIN, closed_loop=closed_loop))
    assert sent == pytest.approx(expected, abs=1e-12)
    assert list(sent) == list(expected), "rows are not in the order of sending"


@pytest.mark.parametrize(
    ("late", "at_s"),
    [
        (follower("b", "a", None, arrival_s=5.0), 5.0),
        (follower("b", "unknown", 1.0, arrival_s=5.0), 5.0),
    ],
    ids=["no delay is known", "the parent is not in the trace"],
)
def test_without_an_answer_to_wait_for_the_stamp_counts(late: Request, at_s: float) -> None:
    assert sent_s(run_on_one([request("a"), late]))["b"] == at_s


def test_the_number_of_arrivals_is_reported_every_thousand() -> None:
    arrivals: list[int] = []
    requests = [request(str(at), float(at), output=1) for at in range(2000)]
    pools = [Pool(PolicyConfig(), ONE_SECOND)]
    last = follower("last", "1999", 1.0)
    simulate_cluster([*requests, last], pools, closed_loop=True, on_arrival=arrivals.append)
    assert arrivals == [1000, 2000]


def test_followers_of_a_refused_request_are_cancelled_and_name_their_parent() -> None:
    requests = [
        request("long", 1.0, prompt=5000),
        follower("b", "long", 1.0, arrival_s=2.0),
        follower("c", "b", 1.0, arrival_s=3.0),
        request("other", 4.0),
    ]
    frame = run_on_one(requests).requests.set_index("request_id")
    status = {"long": "refused", "b": "cancelled", "c": "cancelled", "other": "finished"}
    assert frame["status"].to_dict() == status
    assert frame.loc["b", "error"] == "cancelled: no answer to its parent 'long'"
    assert frame.loc["c", "error"] == "cancelled: no answer to its parent 'b'"
    assert frame["scheduled_s"].tolist() == [1.0, 1.0, 1.0, 4.0]
    assert frame.loc[["b", "c"], "first_token_s"].isna().all()


def test_followers_of_a_request_that_was_given_up_later_are_cancelled_too() -> None:
    config = PolicyConfig(max_seqs=1, shed_ttft_s=1.0)
    requests = [
        request("a", output=5),
        request("late"),
        follower("b", "late", 0.0),
        request("next", 4.5),
    ]
    frame = run_on_one(requests, config).requests.set_index("request_id")
    status = {"a": "finished", "late": "refused", "next": "finished", "b": "cancelled"}
    assert frame["status"].to_dict() == status
    assert frame.loc["b", "scheduled_s"] == 5.0


@pytest.mark.parametrize(
    ("requests", "line"),
    [
        ([follower("a", "a", 1.0)], "a -> a"),
        ([request("r"), follower("a", "b", 1.0), follower("b", "a", 1.0)], "a -> b -> a"),
    ],
)
def test_a_request_that_waits_for_itself_is_named(requests: list[Request], line: str) -> None:
    with pytest.raises(TraceError, match=line):
        run_on_one(requests)
    run_on_one(requests, closed_loop=False)


def test_the_client_waits_until_it_has_the_answer_itself() -> None:
    api = ApiLatency(request_s=0.25, chunk_s=0.5)
    run = run_on_one([request("a"), follower("b", "a", 1.0)], recorder=Recorder(api))
    assert sent_s(run)["b"] == 0.25 + 2 + 0.5 + 1
    assert run.requests["queue_s"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("others", [[], [follower("later", "short", 9.0)]], ids=["open", "closed"])
def test_requests_are_received_in_the_order_of_their_sending(others: list[Request]) -> None:
    """One connection, as in the engine: a short prompt does not overtake a long one."""
    api = ApiLatency(request_per_token_s=0.25)
    sent = [request("long", 0.0, prompt=12), request("short", 0.5, prompt=1), *others]
    run = run_on_one(sent, PolicyConfig(max_seqs=1), recorder=Recorder(api))
    assert run.requests["first_token_s"].tolist()[:2] == [3 + 1, 3 + 2 + 1]


def test_a_generated_closed_loop_runs_to_its_end() -> None:
    drawn = generate(WorkloadSpec(60, None, _Lengths()), seed=1)
    trace = sent_by_users(drawn, 3, think=_Think(), seed=1)
    run = run_on_one(list(trace))
    assert (run.requests["status"] == "finished").all()
    _check_each_waits(list(trace), run)


class _Lengths:
    def sample(self, count: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        return rng.integers(1, 20, count), rng.integers(1, 9, count)


class _Think:
    def sample(self, count: int, rng: np.random.Generator) -> FloatArray:
        return rng.exponential(2.0, count)


def _check_each_waits(requests: list[Request], run: Run) -> None:
    """Every follower was sent its delay after the last token of its last parent."""
    frame = run.requests.set_index("request_id")
    sent, last = frame["scheduled_s"], frame["last_token_s"]
    status = frame["status"]
    assert sorted(frame.index) == sorted(r.request_id for r in requests)
    for asked in requests:
        parents = list(asked.parent_ids)
        if not parents or asked.delay_s is None:
            assert sent[asked.request_id] == asked.arrival_s
        elif (status[parents] == "finished").all():
            assert sent[asked.request_id] == last[parents].max() + asked.delay_s
        else:
            cancelled = not (status[parents] == "finished").any()
            assert (status[asked.request_id] == "cancelled") == cancelled


@st.composite
def families(draw: st.DrawFn) -> list[Request]:
    """Requests of which some follow earlier ones; some are too long for the memory."""
    requests: list[Request] = []
    now_s = 0.0
    for index in range(draw(st.integers(1, 20))):
        now_s += draw(st.sampled_from([0.0, 0.5, 1.0, 7.0]))
        prompt = draw(st.sampled_from([1, 3, 8, 17, 100]))
        own = request(str(index), now_s, prompt, draw(st.integers(1, 9)))
        parents = draw(st.sets(st.sampled_from(range(index)), max_size=3)) if index else ()
        if parents:
            delay_s = draw(st.sampled_from([0.0, 0.5, 2.0]))
            own = replace(own, parent_ids=tuple(map(str, parents)), delay_s=delay_s)
        requests.append(own)
    return requests


@given(requests=families(), queue_limit=st.sampled_from([None, 1]), replicas=st.integers(1, 3))
def test_every_follower_waits_for_its_parent_and_steps_do_not_matter(
    requests: list[Request], queue_limit: int | None, replicas: int
) -> None:
    config = PolicyConfig(
        kv_tokens=64, block_tokens=4, max_model_len=60, max_seqs=3, queue_limit=queue_limit
    )
    macro, single = (
        simulate_cluster(
            requests,
            [Pool(config, ONE_SECOND, replicas)],
            RouterConfig("least-outstanding"),
            macro=macro,
            build=CheckedScheduler,
        )
        for macro in (True, False)
    )
    assert macro.requests.equals(single.requests)
    _check_each_waits(requests, macro)


STEP_S = 1e-4
BY_ROW = LinearStepTime.of({"rows_from_0": STEP_S})
THINK_S, WARM_UP_S = 1.0, 20.0


def thinking_clients(seed: int, clients: int, each: int, services_s: list[float]) -> list[Request]:
    """Exponential thinking; one service is all decodes, two are prompt and decodes.

    Services are geometric numbers of rows of ``STEP_S``: all but exponential.
    """
    think_rng, *rngs = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(3))
    thinks_s = think_rng.exponential(THINK_S, (clients, each)).tolist()
    rows = [
        rng.geometric(STEP_S / service_s, (clients, each)).tolist()
        for rng, service_s in zip(rngs, services_s, strict=False)
    ]
    requests = []
    for client in range(clients):
        for turn, delay_s in enumerate(thinks_s[client]):
            prompt = rows[0][client][turn] if len(rows) == 2 else 1
            output = rows[-1][client][turn] + (len(rows) == 2)
            own = request(f"{client}.{turn}", delay_s, prompt, output)
            if turn:
                own = replace(own, parent_ids=(f"{client}.{turn - 1}",), delay_s=delay_s)
            requests.append(own)
    return sorted(requests, key=lambda r: r.arrival_s)


@pytest.mark.parametrize(
    ("clients", "each", "services_s"),
    [(4, 400, [0.5]), (1, 1000, [0.2, 0.5]), (2, 500, [0.2, 0.5]), (8, 250, [0.2, 0.5])],
    ids=["4 at one station", "Q17 with 1", "Q17 with 2", "Q17 with 8"],
)
@pytest.mark.slow
def test_a_closed_loop_meets_mean_value_analysis(
    clients: int, each: int, services_s: list[float]
) -> None:
    config = PolicyConfig(
        max_seqs=1, kv_tokens=1_000_000, max_model_len=1_000_000, token_budget=1_000_000
    )
    pools = [Pool(config, BY_ROW)]
    if len(services_s) == 2:
        pools = [Pool(config, BY_ROW, role="prefill"), Pool(config, BY_ROW, role="decode")]
    exact = closed_loop(clients, THINK_S, services_s).throughput_per_s
    each //= REDUCTION
    end_s = (1 - WIDENING * 0.15) * clients * each / exact
    rates = []
    for seed in range(REPLICATIONS):
        requests = thinking_clients(seed, clients, each, services_s)
        frame = simulate_cluster(requests, pools).requests
        last_s = frame.groupby(frame["request_id"].str.partition(".")[0])["last_token_s"].max()
        assert last_s.min() > end_s, "a client has left before the measurement ends"
        rates.append(frame["last_token_s"].between(WARM_UP_S, end_s).sum() / (end_s - WARM_UP_S))
    half_width = T_99_9 * np.std(rates, ddof=1) / np.sqrt(REPLICATIONS)
    assert half_width < WIDENING * 0.05 * exact
    assert abs(np.mean(rates) - exact) < half_width
