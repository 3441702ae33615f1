"""One slot, first come first served: equal, exponential and other services."""

from collections.abc import Callable

import numpy as np

from sim.theory import md1_wait_s, mg1_wait_s, mm1_sojourn_quantile_s
from sim.theory.selftest.scenario import HEAVY_TAIL, Figures, Scenario
from sim.theory.selftest.server import (
    ONE_SLOT,
    ROW_COST,
    ROWS,
    IntArray,
    exponential_tokens,
    poisson_arrivals_s,
    replay,
    settled,
    trace,
)

UTILISATION = 0.5
REQUESTS = 5_000
TOKEN_S = 0.02
MEAN_TOKENS, LONGEST_TOKENS = 128, 256


def _md1(rng: np.random.Generator) -> Figures:
    requests = trace(poisson_arrivals_s(rng, UTILISATION, REQUESTS))
    run = replay(ONE_SLOT, {"constant": 1.0}, requests)
    return {"mean wait": float(settled(run, "queue_s").mean())}


def _mm1(rng: np.random.Generator) -> Figures:
    arrivals, lengths = rng.spawn(2)
    rows = exponential_tokens(lengths, ROWS, REQUESTS)
    arrivals_s = poisson_arrivals_s(arrivals, UTILISATION, REQUESTS)
    run = replay(ONE_SLOT, ROW_COST, trace(arrivals_s, rows))
    return {
        "mean wait": float(settled(run, "queue_s").mean()),
        "p99 sojourn": float(np.quantile(settled(run, "e2e_s"), 0.99)),
    }


def _mg1(
    law: str,
    mean_tokens: float,
    cv: float,
    draw: Callable[[np.random.Generator], IntArray],
    replications: int,
) -> Scenario:
    """A service is a number of steps; its law is that of the output tokens."""
    service_s = mean_tokens * TOKEN_S
    rate_per_s = UTILISATION / service_s

    def measure(rng: np.random.Generator) -> Figures:
        arrivals, lengths = rng.spawn(2)
        arrivals_s = poisson_arrivals_s(arrivals, rate_per_s, REQUESTS)
        run = replay(ONE_SLOT, {"constant": TOKEN_S}, trace(arrivals_s, outputs=draw(lengths)))
        return {"mean wait": float(settled(run, "queue_s").mean())}

    setting = f"one slot, steps of 20 ms, {law} outputs of {mean_tokens:g} tokens, half loaded"
    exact = {"mean wait": mg1_wait_s(rate_per_s, service_s, cv)}
    return Scenario(f"mg1-{law}", setting, exact, measure, replications)


def _geometric(rng: np.random.Generator) -> IntArray:
    return rng.geometric(1 / MEAN_TOKENS, REQUESTS)


def _uniform(rng: np.random.Generator) -> IntArray:
    return rng.integers(1, LONGEST_TOKENS, REQUESTS, endpoint=True)


_UNIFORM_MEAN = (1 + LONGEST_TOKENS) / 2
_UNIFORM_CV = float(np.sqrt((LONGEST_TOKENS**2 - 1) / 12)) / _UNIFORM_MEAN

SINGLE_SERVER = (
    Scenario(
        "md1",
        "one slot, services of 1 s, half loaded",
        {"mean wait": md1_wait_s(UTILISATION, 1.0)},
        _md1,
        replications=32,
    ),
    Scenario(
        "mm1",
        "one slot, exponential services of 1 s, half loaded",
        {
            "mean wait": mg1_wait_s(UTILISATION, 1.0, service_cv=1.0),
            "p99 sojourn": mm1_sojourn_quantile_s(0.99, UTILISATION, 1.0),
        },
        _mm1,
        replications=48,
        precision=HEAVY_TAIL,
    ),
    _mg1("geometric", MEAN_TOKENS, float(np.sqrt(1 - 1 / MEAN_TOKENS)), _geometric, 48),
    _mg1("uniform", _UNIFORM_MEAN, _UNIFORM_CV, _uniform, 32),
)
