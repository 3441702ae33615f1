"""A case of the selftest, and the servers and requests that cases are made of.

A distribution of services is continuous, a server counts tokens. Services are therefore cut so fine
that the error is far below any interval: ``ROWS`` prompt rows or ``STEPS`` decode steps per unit of
time. Servers have no bounds but those that a case names.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.sim.core.simulate import simulate
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.step_time import LinearStepTime
from servetwin.workloads.request import Request

PRECISION, HEAVY_TAIL = 0.05, 0.08
"""Half widths that leave power, as shares of the exact value; the second where tails are long."""

Figures = Mapping[str, float]
Measure = Callable[[np.random.Generator], Figures]


@dataclass(frozen=True, slots=True)
class SelftestCase:
    """A server simple enough for theory to know its figures.

    ``measure`` simulates once and returns the figures of ``exact`` (and maybe more), warm-up left
    out. One replication is an identity: nothing in it is random, and both sides agree to rounding.
    ``precision`` is the half width of the interval, as a share of the exact value, that the
    replications must reach: a wider one could not tell right from wrong.
    """

    name: str
    setting: str
    exact: Figures
    measure: Measure
    replications: int = 16
    precision: float = PRECISION


FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

REQUESTS = 5_000
ROWS = 1_000_000
"""Prompt rows that take a second where a prompt is the whole service: an error of 1e-6 s."""
STEPS = 10_000
"""Steps that take a second where decoding is the service: an error of 1e-4 s."""
ROW_COST = {"rows_from_0": 1 / ROWS}
STEP_S = 1 / STEPS
STEP_COST = {"constant": STEP_S}
WARM_UP = 0.1
"""Share of the requests that is left out at the beginning."""

_UNLIMITED = 1 << 40
_MANY = 1 << 20


def server(**settings: Any) -> PolicyConfig:
    """Return a configuration without bounds but the given ones."""
    unbounded = dict.fromkeys(("kv_tokens", "max_model_len", "token_budget"), _UNLIMITED)
    return PolicyConfig(**{**unbounded, "max_seqs": _MANY, **settings})


ONE_SLOT = server(max_seqs=1)


def poisson_arrivals_s(rng: np.random.Generator, rate_per_s: float, count: int) -> FloatArray:
    """Return ``count`` arrivals in seconds, with exponential gaps."""
    return np.cumsum(rng.exponential(1 / rate_per_s, count))


def exponential_tokens(
    rng: np.random.Generator, mean_tokens: float, shape: int | tuple[int, ...]
) -> IntArray:
    """Draw lengths of so many tokens that rounding hardly shows: exponential ones."""
    return np.ceil(rng.exponential(mean_tokens, shape)).astype(np.int64)


DrawTokens = Callable[[np.random.Generator, int], IntArray]
"""Draws the lengths of so many requests."""


def exponential(mean_tokens: float) -> DrawTokens:
    """Return what draws ``exponential_tokens``."""
    return lambda rng, count: exponential_tokens(rng, mean_tokens, count)


def poisson_trace(
    rng: np.random.Generator,
    rate_per_s: float,
    prompts: DrawTokens | int,
    outputs: DrawTokens | int,
) -> list[Request]:
    """Return ``REQUESTS`` of a Poisson process; lengths that are drawn have their own stream."""
    arrivals, lengths = rng.spawn(2) if callable(prompts) or callable(outputs) else (rng, rng)
    arrivals_s = poisson_arrivals_s(arrivals, rate_per_s, REQUESTS)
    drawn = (of(lengths, REQUESTS) if callable(of) else of for of in (prompts, outputs))
    return trace(arrivals_s, *drawn)


def trace(
    arrivals_s: npt.ArrayLike,
    prompts: npt.ArrayLike = 1,
    outputs: npt.ArrayLike = 1,
    priorities: npt.ArrayLike = 0,
) -> list[Request]:
    """Return requests; lengths and priorities are one per request, or one for all."""
    columns = np.broadcast_arrays(arrivals_s, prompts, outputs, priorities)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [
        Request(str(i), arrival_s, prompt, output, priority=priority)
        for i, (arrival_s, prompt, output, priority) in enumerate(rows)
    ]


def replay(config: PolicyConfig, cost: Mapping[str, float], requests: Iterable[Request]) -> Run:
    """Simulate one server; ``cost`` is in seconds by feature of a step."""
    return simulate(requests, build_scheduler(config), LinearStepTime.of(cost))


def settled(run: Run, column: str) -> FloatArray:
    """Return a column of the requests after the warm-up."""
    values = run.requests[column].to_numpy(dtype=np.float64)
    return values[int(WARM_UP * len(values)) :]


def mean(run: Run, column: str) -> float:
    """Return the mean of a column after the warm-up."""
    return float(settled(run, column).mean())
