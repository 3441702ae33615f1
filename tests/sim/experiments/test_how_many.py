"""How many servers or users: against Erlang, the machine-repair model, and laws of the search."""

import json
from dataclasses import dataclass, replace
from itertools import pairwise
from math import exp, factorial, inf
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import gamma

import tests.support.queue_cases.case as case
from servetwin.sim.experiments.capacity import Replications, SLOTarget
from servetwin.sim.experiments.fleet import Replicas, Users, times
from servetwin.sim.experiments.how_many import (
    CountQuestion,
    CountSearch,
    HowMany,
    TriedCount,
    how_many,
    least_requests,
    search,
    search_drawn,
)
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.experiments.scenario import ClusterConfig, Scenario
from servetwin.sim.experiments.search import TurningPoint
from servetwin.sim.records.metrics import SLO
from servetwin.sim.step_times.profile import Profile, load_profile
from servetwin.workloads.errors import TraceError
from servetwin.workloads.generators.pauses import ExponentialPause, LognormalPause
from servetwin.workloads.graphs.lane_rules import LaneRules
from servetwin.workloads.reading import sample_trace
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.effort import REDUCTION, examples
from tests.support.paths import SHEET_PROFILE
from tests.support.theory.queues import mmc_wait_quantile_s

STEP_S = 0.01
STEPS = 100
"""Steps of a mean service: a second."""
COMPUTED = load_profile(SHEET_PROFILE)


def served(step_s: float = STEP_S, **settings: Any) -> Scenario:
    """A server whose steps take so long whatever is in them."""
    facts: dict[str, Any] = json.loads(COMPUTED.model_dump_json(by_alias=True))
    paged = {"coefficients": {"constant": step_s}}
    facts.update(name="steps", api={}, layouts={"contiguous": paged, "paged": paged})
    return Scenario(case.server(**settings), Profile.model_validate(facts))


def exponential_trace(seed: int, rate_per_s: float, count: int) -> Trace:
    rng = np.random.default_rng(seed)
    arrivals_s = case.poisson_arrivals_s(rng, rate_per_s, count)
    outputs = case.exponential_tokens(rng, STEPS, count)
    return Trace(tuple(case.trace(arrivals_s, 1, outputs)), "made")


@dataclass(frozen=True, slots=True)
class Slots(Replicas):
    """Slots of one server before which all wait in one queue: M/M/c."""

    def at(self, count: int) -> tuple[Trace, Scenario]:
        return self.trace, served(max_seqs=count)


@pytest.mark.slow
@pytest.mark.parametrize(("wait_s", "slots"), [(2.6, 4), (0.2, 6)])
def test_the_fewest_slots_are_those_of_erlang(wait_s: float, slots: int) -> None:
    """The smallest c of M/M/c with which 90 % wait at most so long (Erlang 1917)."""
    rate_per_s = 3.0
    fitting = (c for c in range(4, 20) if mmc_wait_quantile_s(0.9, c, rate_per_s, 1.0) <= wait_s)
    assert next(fitting) == slots
    trace = exponential_trace(4, rate_per_s, 12_000 // REDUCTION)
    target = SLOTarget(SLO(ttft_s=wait_s + STEP_S), 0.9)
    found = how_many(Slots(trace, served(max_seqs=1)), CountQuestion(target), Replications(4))
    assert found.count == slots
    low, high = found.interval() or (None, None)
    assert low is not None
    assert high is not None
    assert slots - 1 <= low <= slots <= high <= slots + 1


def test_replicas_in_turn_are_queues_of_erlang_arrivals() -> None:
    """Round-robin over c servers of one slot: each is E_c/M/1, whose waits are exponential."""
    rate_per_s, wait_s = 2.5, 2.0

    def late(servers: int) -> float:
        each = rate_per_s * 1.0
        root = brentq(lambda s: s - (each / (each + 1 - s)) ** servers, 1e-9, 1 - 1e-9)
        return float(root * exp(-(1 - root) * wait_s))

    fewest = next(c for c in range(3, 20) if late(c) <= 0.1)
    trace = exponential_trace(1, rate_per_s, 12_000 // REDUCTION)
    target = SLOTarget(SLO(ttft_s=wait_s + STEP_S), 0.9)
    found = search(Replicas(trace, served(max_seqs=1)), CountQuestion(target))
    assert found.count == fewest
    assert found.held is not None
    assert found.held.share == pytest.approx(1 - late(fewest), abs=0.02)


def repair_quantile_s(users: int, think_s: float, share: float) -> float:
    """The sojourn in M/M/1//N that a share stays within: an arrival sees the others settled."""
    weights = [factorial(users - 1) / factorial(users - 1 - n) * think_s**-n for n in range(users)]
    seen = np.array(weights) / sum(weights)

    def below(time_s: float) -> float:
        return float(sum(p * gamma.cdf(time_s, n + 1) for n, p in enumerate(seen))) - share

    return float(brentq(below, 1e-6, 1000.0))


@pytest.mark.slow
def test_the_most_users_are_those_of_the_machine_repair_model() -> None:
    """One slot, exponential services of 1 s, exponential thinking of 5 s, 90 % within a limit."""
    quantiles = [repair_quantile_s(n, 5.0, 0.9) for n in range(4, 12)]
    limit_s, exact = (quantiles[2] + quantiles[3]) / 2, 6
    target = SLOTarget(SLO(e2e_s=limit_s), 0.9)
    found = [
        search(
            Users(
                exponential_trace(seed, 1.0, 2000), served(max_seqs=1), ExponentialPause(5.0), seed
            ),
            CountQuestion(target),
        ).count
        for seed in range(4)
    ]
    assert np.mean([count or 0 for count in found]) == pytest.approx(exact, abs=0.75)


@pytest.mark.parametrize(("limit_s", "users"), [(1.5, 5), (3.1, 7), (0.5, 0)])
def test_equal_users_wait_as_operational_analysis_says(limit_s: float, users: int) -> None:
    """N users, services of 1 s, 4 s of thinking: each answer takes max(1, N - 4) s (Denning and
    Buzen 1978)."""
    trace = Trace(tuple(case.trace(np.arange(400.0), 1, STEPS)), "made")
    target = SLOTarget(SLO(e2e_s=limit_s), 0.9)
    users_of = Users(trace, served(max_seqs=1), LognormalPause(4.0, sigma=0.0))
    found = search(users_of, CountQuestion(target, most=64))
    assert found.count == users
    assert found.missed is not None
    assert found.missed.count == users + 1
    assert found.missed.latencies_s["e2e_s"] == pytest.approx(max(1.0, users - 3), abs=0.1)


@pytest.mark.parametrize(("limit_s", "lanes"), [(1.5, 5), (3.1, 7), (0.5, 0)])
def test_equal_lanes_wait_as_operational_analysis_says(limit_s: float, lanes: int) -> None:
    """The same law for agents whose tools take 4 s: N lanes of long sessions, max(1, N - 4) s."""
    first, *later = case.trace(np.arange(400.0), 1, STEPS)
    session = [replace(first, session_id="s")]
    for turn in later:
        before = session[-1].request_id
        session.append(replace(turn, session_id="s", parent_ids=(before,), delay_s=4.0))
    trace = Trace(tuple(session), "made", lanes=LaneRules(1, duration_s=300.0))
    target = SLOTarget(SLO(e2e_s=limit_s), 0.9)
    found = search(Users(trace, served(max_seqs=1)), CountQuestion(target, most=64))
    assert found.count == lanes
    assert found.missed is not None
    assert found.missed.latencies_s["e2e_s"] == pytest.approx(max(1.0, lanes - 3), abs=0.1)


def test_an_overloaded_number_is_missed_though_the_trace_ends_first() -> None:
    """Two requests a second of a second each, for 50 seconds, within a limit of a minute."""
    trace = Trace(tuple(case.trace(np.arange(0, 50, 0.5), 1, STEPS)), "made")
    target = SLOTarget(SLO(ttft_s=60.0), 0.9)
    found = search(Replicas(trace, served(max_seqs=1)), CountQuestion(target))
    assert found.count == 2
    one = found.at(1)
    assert one is not None
    assert one.share == 1.0
    assert one.load is not None
    assert one.load > 1
    assert not one.holds


def test_where_nothing_holds_there_is_no_number() -> None:
    trace = Trace(tuple(case.trace(np.arange(40.0), 1, STEPS)), "made")
    target = SLOTarget(SLO(e2e_s=0.5), 0.9)
    found = how_many(Replicas(trace, served(max_seqs=1)), CountQuestion(target), Replications(2))
    assert (found.count, found.interval()) == (None, (None, None))
    assert found.first.missed is not None
    assert found.first.missed.count == 40, "a server for each request"


@pytest.mark.parametrize(("attainment", "requests"), [(0.99, 99), (0.9, 9), (0.5, 1), (0.999, 999)])
def test_a_short_trace_says_that_it_cannot_tell(attainment: float, requests: int) -> None:
    assert least_requests(attainment) == requests + 1
    trace = Trace(tuple(case.trace(np.arange(float(requests)), 1, 2)), "made")
    target = SLOTarget(SLO(ttft_s=1.0), attainment)
    with pytest.raises(TraceError, match=f"made: .* cannot tell .* take at least {requests + 1}"):
        search(Replicas(trace, served()), CountQuestion(target))


def test_a_trace_without_times_wants_a_rate() -> None:
    trace = Trace(tuple(case.trace(np.zeros(20), 1, 2)), "made", timed=False)
    target = SLOTarget(SLO(ttft_s=1.0), 0.9)
    with pytest.raises(TraceError, match="no arrival times; give a rate"):
        search(Replicas(trace, served()), CountQuestion(target))
    assert search(Users(trace, served()), CountQuestion(target, most=4)).count == 4


class Sampled(NamedTuple):
    counted: Replicas
    question: CountQuestion
    first: CountSearch


def sampled(ttft_s: float = 0.5, attainment: float = 0.9) -> Sampled:
    profile = load_profile("base-cpu")
    trace = Trace(sample_trace().requests[:120], "sample")
    fast = Trace(
        tuple(
            Request(r.request_id, r.arrival_s / 6, r.prompt_tokens, r.output_tokens) for r in trace
        ),
        "sample",
    )
    replicas = Replicas(fast, Scenario(profile.policy_config(), profile))
    question = CountQuestion(SLOTarget(SLO(ttft_s=ttft_s), attainment))
    return Sampled(replicas, question, search(replicas, question))


def test_more_replicas_are_never_worse_beyond_the_noise_nor_a_looser_limit_dearer() -> None:
    job = sampled()
    found = how_many(job.counted, job.question, Replications(6))
    tried = found.first.tried
    for few, more in pairwise(tried):
        low, _ = found.factors(more.count) or (more.factor, more.factor)
        _, high = found.factors(few.count) or (few.factor, few.factor)
        assert low <= high
    counts = [search(job.counted, CountQuestion(SLOTarget(SLO(ttft_s=s), 0.9))).count or inf
              for s in (0.25, 0.5, 1.0, 4.0)]  # fmt: skip
    assert counts == sorted(counts, reverse=True)


@pytest.mark.slow
def test_replications_are_common_random_numbers() -> None:
    """A count has the same figures in a replication wherever its search set out, on any process."""
    job = sampled()
    elsewhere = CountSearch(job.first.tried, TurningPoint(None, 1), True, job.first.is_outside)
    one = search_drawn(job.counted, job.question, job.first, 3)
    other = search_drawn(job.counted, job.question, elsewhere, 3)
    for tried in one.tried:
        assert other.at(tried.count) in (tried, None)
    assert one.count == other.count
    alone, spread = (how_many(job.counted, job.question, Replications(3, n)) for n in (1, 2))
    assert alone == spread


@settings(max_examples=examples(10))
@given(
    users=st.integers(1, 6),
    lengths=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 30)), min_size=1, max_size=8),
    think_s=st.sampled_from([None, 0.01, 0.3]),
    replicas=st.integers(1, 3),
)
def test_users_step_by_step_are_users_by_macro_steps(
    users: int, lengths: list[tuple[int, int]], think_s: float | None, replicas: int
) -> None:
    requests = (Request(str(i), float(i), *tokens) for i, tokens in enumerate(lengths))
    think = None if think_s is None else ExponentialPause(think_s)
    scenario = times(served(0.0078125, max_seqs=2), replicas)
    trace, of_users = Users(Trace(tuple(requests), "made"), scenario, think).at(users)
    quick, slow = (run_once(trace, of_users, macro=macro) for macro in (True, False))
    assert quick.requests.equals(slow.requests)


def tried(count: int, holds: bool, factor: float = 1.0) -> TriedCount:
    return TriedCount(count, 100, float(holds), {"ttft_s": factor}, factor, None, holds)


def drawn(*counts: int | None) -> HowMany:
    first = CountSearch((tried(2, False, 2.0), tried(3, True, 0.5)), TurningPoint(2, 3), True)
    draws = tuple(
        CountSearch((tried(2, False, 2.0 + n), tried(3, n != 1, 0.5)), TurningPoint(2, c), True)
        for n, c in enumerate(counts)
    )
    return HowMany(first, draws)


def test_intervals_have_nine_of_ten_draws_and_the_answer() -> None:
    found = drawn(*[3] * 19, 9)
    assert found.interval() == (3, 9), "of twenty, one on either side may be beyond"
    assert drawn(*[3] * 37, 9, 10, 11).interval() == (3, 10)
    assert drawn(4, 5).interval() == (3, 5), "the answer of the trace itself is in it"
    assert drawn(3, None).interval() == (3, None)
    assert drawn(3).interval() is drawn().interval() is None
    assert found.factors(2) == (2.0, 21.0)
    assert drawn(4, 5).factors(3) == (0.5, 0.5)
    assert (found.holding(3), found.holding(2), found.holding(7)) == (19, 0, None)


def test_a_split_cluster_grows_as_it_is() -> None:
    scenario = Scenario(
        COMPUTED.policy_config(), COMPUTED, ClusterConfig(prefill_replicas=1, decode_replicas=2)
    )
    cluster = times(scenario, 3).cluster
    assert (cluster.prefill_replicas, cluster.decode_replicas, cluster.replicas) == (3, 6, 1)
