"""Degenerate settings meet queueing theory inside a confidence interval."""

import numpy as np
import pytest

from policies.config import PolicyConfig
from policies.registry import build_scheduler
from sim.metrics import summarize
from sim.simulate import simulate
from sim.step_time import LinearStepTime
from workloads.request import Request

SERVICE_S = 1.0
REQUESTS = 4000
WARM_UP = 500
REPLICATIONS = 24
T_99_9 = 3.77
"""Two-sided 99.9 % quantile of Student's t with 23 degrees of freedom."""


def mean_wait_s(seed: int, utilisation: float, output_tokens: list[int]) -> float:
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(SERVICE_S / utilisation, REQUESTS))
    mean_tokens = float(np.mean(output_tokens))
    tokens = rng.choice(output_tokens, REQUESTS)
    requests = [
        Request(str(i), float(a), 1, int(n))
        for i, (a, n) in enumerate(zip(arrivals, tokens, strict=True))
    ]
    model = LinearStepTime.of({"constant": SERVICE_S / mean_tokens})
    one_server = PolicyConfig(max_seqs=1, kv_tokens=4096)
    run = simulate(requests, build_scheduler(one_server), model)
    return float(run.requests["queue_s"][WARM_UP:].mean())


@pytest.mark.parametrize(
    ("utilisation", "tokens"),
    [(0.5, [1]), (0.8, [1]), (0.7, [2, 18])],
    ids=["M/D/1 at 50 %", "M/D/1 at 80 %", "M/G/1 at 70 %"],
)
def test_one_slot_waits_as_pollaczek_and_khinchine_say(
    utilisation: float, tokens: list[int]
) -> None:
    """Mean wait of M/G/1: rho * S * (1 + CV^2) / (2 (1 - rho)); the interval is within 12 %."""
    lengths = np.array(tokens, dtype=float)
    cv2 = lengths.var() / lengths.mean() ** 2
    theory = utilisation * SERVICE_S * (1 + cv2) / (2 * (1 - utilisation))
    waits = np.array([mean_wait_s(seed, utilisation, tokens) for seed in range(REPLICATIONS)])
    half_width = T_99_9 * waits.std(ddof=1) / np.sqrt(REPLICATIONS)
    assert half_width < 0.12 * theory
    assert abs(waits.mean() - theory) < half_width


def test_littles_law_holds_exactly() -> None:
    rng = np.random.default_rng(5)
    arrivals = np.cumsum(rng.exponential(0.05, 500))
    lengths = rng.integers(1, 60, (500, 2)).tolist()
    requests = [
        Request(str(i), float(arrivals[i]), prompt, output)
        for i, (prompt, output) in enumerate(lengths)
    ]
    model = LinearStepTime.of({"constant": 0.01, "rows_from_0": 0.001})
    run = simulate(requests, build_scheduler(PolicyConfig(kv_tokens=2000)), model)
    summary = summarize(run.requests)
    spans = run.requests[["scheduled_s", "last_token_s"]].to_numpy()
    events = np.sort(np.concatenate([spans[:, 0], spans[:, 1]]))
    middles = (events[1:] + events[:-1]) / 2
    inside = np.searchsorted(np.sort(spans[:, 0]), middles) - np.searchsorted(
        np.sort(spans[:, 1]), middles
    )
    mean_inside = float((inside * np.diff(events)).sum()) / summary["makespan_s"]
    rate = 500 / summary["makespan_s"]
    assert mean_inside == pytest.approx(rate * summary["e2e_s"]["mean"], rel=1e-9)
