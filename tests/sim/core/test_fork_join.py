"""Task graphs in the simulator, against closed forms."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from servetwin.policies.config import PolicyConfig
from servetwin.policies.routers.replica_loads import RouterConfig
from servetwin.sim.core.cluster import simulate_cluster
from servetwin.sim.core.pools import Pool
from servetwin.sim.step_times.step_time import LinearStepTime
from servetwin.workloads.request import Request

ONE_SECOND = LinearStepTime.of({"constant": 1.0})
Tree = Any
"""A request of so many seconds after a delay, or parts in series or in parallel."""

requests_alone = st.tuples(st.integers(1, 5), st.sampled_from([0.0, 0.25, 2.0]))
series_parallel = st.recursive(
    requests_alone,
    lambda part: st.tuples(
        st.sampled_from(["series", "parallel"]), st.lists(part, min_size=1, max_size=3)
    ),
    max_leaves=12,
)


class Built:
    """The requests of a tree, and how long it takes where every request has its own server."""

    def __init__(self, tree: Tree) -> None:
        self.requests = [Request("start", 0.0, 1, 1)]
        self.lasts, self.seconds = self._part(tree, ("start",))

    def _part(self, tree: Tree, parents: tuple[str, ...]) -> tuple[tuple[str, ...], float]:
        kind, parts = tree
        if not isinstance(kind, str):
            name = str(len(self.requests))
            self.requests.append(Request(name, 0.0, 1, kind, parent_ids=parents, delay_s=parts))
            return (name,), kind + parts
        if kind == "series":
            seconds = 0.0
            for part in parts:
                parents, more_s = self._part(part, parents)
                seconds += more_s
            return parents, seconds
        ends = [self._part(part, parents) for part in parts]
        return tuple(name for names, _ in ends for name in names), max(s for _, s in ends)


@given(series_parallel)
def test_series_parallel_graphs_of_fixed_times_take_the_sums_and_the_maxima(tree: Tree) -> None:
    built = Built(tree)
    pool = Pool(PolicyConfig(), ONE_SECOND, len(built.requests))
    run = simulate_cluster(built.requests, [pool], RouterConfig("least-outstanding"))
    ends_s = run.requests.set_index("request_id")["last_token_s"]
    assert ends_s[list(built.lasts)].max() == pytest.approx(1.0 + built.seconds, abs=1e-6)


STEP_S, SERVICE_S, TASKS, SEEDS = 1e-3, 0.5, 2000, 10


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.3, 0.7])
def test_fork_join_of_two_queues_takes_its_closed_form(load: float) -> None:
    """Mean (12 - rho) / 8 sojourns of M/M/1 (Flatto and Hahn 1984; Nelson and Tantawi 1988).

    It lies between the bounds 1 (one queue) and 1.5 (two that are independent).
    """
    config = PolicyConfig(max_seqs=1, kv_tokens=100_000, max_model_len=100_000)
    pool = Pool(config, LinearStepTime.of({"rows_from_0": STEP_S}), 2)
    sojourn_s = SERVICE_S / (1 - load)
    means = []
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        arrivals_s = rng.exponential(SERVICE_S / load, TASKS).cumsum().tolist()
        rows = rng.geometric(STEP_S / SERVICE_S, (TASKS, 2)).tolist()
        forks = [
            Request(f"{task}.{branch}", at_s, 1, rows[task][branch])
            for task, at_s in enumerate(arrivals_s)
            for branch in (0, 1)
        ]
        joins = [  # too long to be served: only the time at which it is sent counts
            Request(f"{task}", at_s, 200_000, 1, parent_ids=(f"{task}.0", f"{task}.1"), delay_s=0.0)
            for task, at_s in enumerate(arrivals_s)
        ]
        frame = simulate_cluster([*forks, *joins], [pool]).requests.set_index("request_id")
        sent_s = frame["scheduled_s"][[join.request_id for join in joins]].to_numpy()
        means.append((sent_s - arrivals_s)[TASKS // 10 :].mean() / sojourn_s)
    half_width = student.ppf(0.995, SEEDS - 1) * np.std(means, ddof=1) / np.sqrt(SEEDS)
    assert half_width < 0.15
    assert abs(np.mean(means) - (12 - load) / 8) < half_width
    assert 1 < np.mean(means) < 1.5
