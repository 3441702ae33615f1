"""Fleets against Markov chains: servers that break down, and more or fewer of them with the load.

Requests join the shortest of the queues of the servers that are up. One that is served needs an
exponential time; when its server breaks down it is lost, and those behind it join others: what
the gateway of a fleet does that notices at once. Servers break down and are repaired on their own
(the model of Mitrany and Avi-Itzhak, Operations Research 1968, with a queue for each server). The
chain of all queues is solved numerically.
"""

from collections.abc import Iterator
from math import comb, sqrt

import numpy as np
import pytest

from servetwin.policies.config import PolicyConfig
from servetwin.policies.routers.replica_loads import RouterConfig
from servetwin.sim.core.autoscaling import parse_rule
from servetwin.sim.core.cluster import simulate_cluster
from servetwin.sim.core.faults import parse_faults
from servetwin.sim.core.fleet.gateway import FleetPlan
from servetwin.sim.core.pools import Pool
from servetwin.sim.step_times.step_time import LinearStepTime
from servetwin.workloads.request import Request
from tests.support.checked import request
from tests.support.effort import REDUCTION
from tests.support.markov import FloatArray, Moves, State, steady_state
from tests.support.theory.queues import mm1_sojourn_s

LONGEST = 30_000
ONE_AT_A_TIME = PolicyConfig(
    batching="continuous", kv_tokens=40_000, max_model_len=40_000, max_seqs=1, token_budget=LONGEST
)
TOKEN_S, MEAN_TOKENS = 0.001, 1000
# An answer of n tokens takes n steps: 1 s on average, and almost exponential.
SERVER = LinearStepTime.of({"constant": TOKEN_S})
SHORTEST = RouterConfig("least-outstanding")
# 99 % of the means of 40 batches lie within so many standard errors.
BATCHES, QUANTILE = 40, 2.7


class ShortestQueues:
    """A chain of servers that break down and of the queues before them; times are of a service.

    A state has the number of requests that wait while no server is up, then the queue of each
    server that is up, the shortest first. There are at most ``most`` requests.
    """

    def __init__(
        self, servers: int, arrive: float, fail: float = 0.0, repair: float = 0.0, most: int = 30
    ) -> None:
        self.servers, self.arrive, self.fail, self.repair = servers, arrive, fail, repair
        states = {(0, *[0] * servers): None}
        for state in (found := list(states)):  # it grows meanwhile
            for to, rate in self.moves(state):
                if rate and to not in states and sum(to) <= most:
                    states[to] = None
                    found.append(to)
        self.states = found
        self.law: FloatArray = steady_state(found, self.moves)

    def moves(self, state: State) -> Moves:
        """Return where a state goes, and how often."""
        held, *queues = state
        down = self.servers - len(queues)
        moves = [(joined(held, queues, 1), self.arrive)]
        for place, queue in enumerate(queues):
            others = queues[:place] + queues[place + 1 :]
            if queue:
                moves.append(((held, *sorted([*others, queue - 1])), 1.0))
            moves.append((joined(held, others, max(0, queue - 1)), self.fail))
        if down:
            moves.append(((0, *sorted([*queues, held])), self.repair * down))
        return moves

    def mean(self, values: Iterator[float]) -> float:
        """Return the mean of a value of each state."""
        return float(self.law @ np.fromiter(values, float))

    @property
    def wait(self) -> float:
        """The mean wait until a server begins, by Little's law."""
        waiting = (sum(max(0, q - 1) for q in state[1:]) + state[0] for state in self.states)
        return self.mean(waiting) / self.arrive


def joined(held: int, queues: list[int], more: int) -> State:
    """Return the state after requests have joined the shortest queue, one by one."""
    queues = sorted(queues)
    for _ in range(more):
        if queues:
            queues = sorted([queues[0] + 1, *queues[1:]])
        else:
            held += 1
    return (held, *queues)


def test_the_chain_of_one_server_is_mm1_and_servers_are_up_as_they_are_repaired() -> None:
    one = ShortestQueues(1, 0.5, most=80)
    assert one.wait == pytest.approx(mm1_sojourn_s(0.5, 1.0) - 1.0)
    three = ShortestQueues(3, 0.5, 0.05, 0.2)
    for up in range(4):
        share = three.mean(float(len(state) == up + 1) for state in three.states)
        assert share == pytest.approx(comb(3, up) * 0.8**up * 0.2 ** (3 - up), rel=1e-6)
    busy = three.mean(float(sum(q > 0 for q in state[1:])) for state in three.states)
    assert busy == pytest.approx(0.5 / 1.05, rel=1e-6), "all that come are served or lost"


def arriving(rates: list[float], each: int, seed: int) -> list[Request]:
    """Poisson arrivals, so many at each rate, of exponential answers."""
    rng = np.random.default_rng(seed)
    gaps_s = np.concatenate([rng.exponential(1 / rate, each) for rate in rates])
    tokens = np.ceil(rng.exponential(MEAN_TOKENS, len(gaps_s))).clip(1, LONGEST)
    rows = zip(np.cumsum(gaps_s).tolist(), tokens.tolist(), strict=True)
    return [request(str(n), at_s, 1, int(size)) for n, (at_s, size) in enumerate(rows)]


def breakdowns(servers: int, fail: float, repair: float, end_s: float, seed: int) -> str:
    """Breakdowns of each server after exponential times, up and down."""
    rng = np.random.default_rng([seed, 1])
    faults = []
    for replica in range(servers):
        at_s = float(rng.exponential(1 / fail))
        while at_s < end_s:
            down_s = float(rng.exponential(1 / repair)) + 1e-6
            faults.append(f"crash:replica={replica},at_s={at_s!r},for_s={down_s!r}")
            at_s += down_s + float(rng.exponential(1 / fail)) + 1e-6
    return " ".join(faults)


def is_near(values: FloatArray, expected: float) -> bool:
    """Return whether the 99 % interval of a mean, by batches, contains what is expected."""
    means = values[: len(values) // BATCHES * BATCHES].reshape(BATCHES, -1).mean(axis=1)
    error = float(means.std(ddof=1)) / sqrt(BATCHES)
    return bool(abs(means.mean() - expected) < QUANTILE * error)


def with_breakdowns(servers: int, seed: int) -> list[bool]:
    """Return whether the waits and the share that is lost are those of the chain."""
    arrive, fail, repair = 0.5 * servers, 0.2, 1.0
    requests = arriving([arrive], 30_000 // REDUCTION, seed)
    plan = breakdowns(servers, fail, repair, requests[-1].arrival_s, seed)
    rows = simulate_cluster(
        requests, [Pool(ONE_AT_A_TIME, SERVER, servers)], SHORTEST, closed_loop=False,
        fleet=FleetPlan(servers, parse_faults(plan), None, 0.0, 10**6),
    ).requests  # fmt: skip
    waits_s = rows["first_token_s"].to_numpy() - rows["scheduled_s"].to_numpy() - TOKEN_S
    lost = (rows["status"] == "failed").to_numpy().astype(float)
    chain = ShortestQueues(servers, arrive, fail, repair, 40)
    return [is_near(waits_s, chain.wait), is_near(lost, fail / (1 + fail))]


@pytest.mark.slow
@pytest.mark.parametrize("servers", [2, 3])
def test_servers_that_break_down_are_the_chain_of_their_queues(servers: int) -> None:
    assert all(with_breakdowns(servers, 0))


PHASES = [(2, 1.2), (4, 2.6), (5, 3.0), (3, 1.8)]


def autoscaled(seed: int) -> list[bool]:
    """Return whether the waits of each phase of a day are those of a fleet of that size."""
    each = 12_000 // REDUCTION
    requests = arriving([rate for _, rate in PHASES], each, seed)
    changes = [f"/{size}@{requests[n * each].arrival_s:.3f}" for n, (size, _) in enumerate(PHASES)]
    steps = "2" + "".join(changes[1:])
    rule = parse_rule(f"schedule:steps={steps},max=5,interval_s=1,stabilisation_s=0")
    rows = simulate_cluster(
        requests, [Pool(ONE_AT_A_TIME, SERVER, 5)], SHORTEST, closed_loop=False,
        fleet=FleetPlan(2, (), rule),
    ).requests  # fmt: skip
    waits_s = rows["first_token_s"].to_numpy() - rows["scheduled_s"].to_numpy() - TOKEN_S
    phases = waits_s.reshape(len(PHASES), each)[:, each // 20 :]
    return [
        is_near(phase, ShortestQueues(size, rate).wait)
        for phase, (size, rate) in zip(phases, PHASES, strict=True)
    ]


@pytest.mark.slow
def test_a_fleet_that_follows_its_load_is_quasi_steady_at_every_size() -> None:
    assert all(autoscaled(0))
