"""Iteration-level batching without limits: all who wait join at the next step boundary.

Every request needs ``steps`` steps of ``step_s`` seconds, whatever the batch; Poisson arrivals; a
server that is idle starts at once.
"""

from math import exp, expm1

from sim.theory.checks import check_positive, check_whole


def gated_idle_probability(rate_per_s: float, step_s: float, steps: int) -> float:
    """Share of the time that the server is idle.

    An idle spell lasts 1 / rate. A busy one ends with the first run of ``steps`` steps without an
    arrival, after (1 - q^m) / ((1 - q) q^m) steps on average, q = exp(-rate * step_s) (Feller, An
    Introduction to Probability Theory I, section XIII.7).
    """
    check_positive(rate_per_s=rate_per_s, step_s=step_s)
    check_whole(steps=steps)
    per_step = rate_per_s * step_s
    idle = exp(-steps * per_step) * -expm1(-per_step)
    return idle / (idle - per_step * expm1(-steps * per_step))


def gated_sojourn_s(rate_per_s: float, step_s: float, steps: int) -> float:
    """Mean sojourn: the request's own steps, and half a step for those who find the server busy.

    Poisson arrivals see time averages, and one within a step comes uniformly in it.
    """
    idle = gated_idle_probability(rate_per_s, step_s, steps)
    return steps * step_s + (1 - idle) * step_s / 2


def gated_mean_in_system(rate_per_s: float, step_s: float, steps: int) -> float:
    """Time average of the requests present, by Little's law.

    Near rate * (steps + 1/2) * step_s, as M/G/infinity with half a step more, where the server is
    hardly ever idle.
    """
    return rate_per_s * gated_sojourn_s(rate_per_s, step_s, steps)
