"""The load of a calibration round: other requests with the lengths of the trace to be predicted.

Bursts of chosen shapes are not the load that a forecast will meet: a server that also receives
requests and sends tokens may compute the same batch more slowly. So each round ends with such a
load, near the capacity that is known by then.
"""

from dataclasses import replace

import numpy as np

from servetwin.sim.experiments.capacity import saturation_rate_per_s
from servetwin.sim.step_times.profile import Profile
from servetwin.workloads.trace import Trace

LOAD_UTILISATION = 0.85
LOAD_S = 10.0
"""Share of the capacity that the load of a calibration round offers, and its length in seconds."""
LOAD_REQUESTS = (20, 400)
"""The fewest and the most requests of such a load."""


def load_rate_per_s(trace: Trace, profile: Profile) -> float:
    """Return the rate of a representative load: near the capacity that is known by now."""
    return LOAD_UTILISATION * saturation_rate_per_s(trace, profile.policy_config(), profile)


def representative_load(
    trace: Trace, rate_per_s: float, seconds: float, rng: np.random.Generator
) -> Trace:
    """Return a Poisson load of other requests whose lengths and prefixes are drawn from ``trace``.

    It lasts about ``seconds``, within ``LOAD_REQUESTS``. No follow-up waits for its parent.
    """
    fewest, most = LOAD_REQUESTS
    count = int(np.clip(rate_per_s * seconds, fewest, most))
    arrivals_s = np.cumsum(rng.exponential(1 / rate_per_s, count))
    tag = int(rng.integers(1 << 62))  # new names: prompts that no prefix cache has seen
    requests = [
        replace(
            trace.requests[int(row)], request_id=f"load-{tag}-{number}", arrival_s=float(at_s),
            parent_id=None, delay_s=None,
        )
        for number, (row, at_s) in enumerate(
            zip(rng.integers(len(trace), size=count), arrivals_s, strict=True)
        )
    ]  # fmt: skip
    return Trace(tuple(requests), "calibration load")
