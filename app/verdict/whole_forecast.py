"""The whole forecast at the speed of the load tests: printed as a fact, and not judged."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import pandas as pd

from servetwin.app.verdict.claims import MetricComparison
from servetwin.app.verdict.measured_facts import MeasuredFacts, as_sent
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.records.metrics import mean_latencies
from servetwin.sim.step_times.profile import Profile

# Step times are scaled by this up and down to find the elasticity.
_CHANGE = 1.02


@dataclass(frozen=True, slots=True)
class WholeForecast:
    """A mean latency (s): forecast at the speed of the tests, then with the measured error of the
    step times taken out, and as measured.

    What the second leaves is what a mean speed cannot carry: slow spells, and how steps mix.
    ``elasticity`` is by how many per cent the latency moves for 1 % of step time at this load,
    ``explained`` the share of the error that the interval of the step times allows for, and
    ``unsure`` the relative half width that this interval gives the latency.
    """

    at_speed_s: float
    corrected_s: float
    measured_s: float
    elasticity: float
    explained: float
    unsure: float

    @classmethod
    def of(
        cls,
        tests: Sequence[MeasuredFacts],
        scenario: Scenario,
        slowness: float,
        steps: MetricComparison,
        seed: int,
    ) -> dict[str, Self]:
        """Return the mean latencies by name; ``steps`` compares the times of all steps."""
        profile, error = scenario.profile, steps.error or 0.0
        assert isinstance(profile, Profile)
        sent = [one.trace() for one in tests]

        def forecast(served: Profile, scale: float) -> dict[str, float]:
            scaled = Scenario(scenario.policies, served.scaled(scale))
            return mean_latencies(
                pd.concat([run_once(one, scaled, seed=seed).requests for one in sent])
            )

        at_speed, corrected = (forecast(profile, slowness / part) for part in (1.0, 1 + error))
        steady = profile.without_noise()  # or other draws would hide what 2 % change
        slower, faster = (forecast(steady, slowness * part) for part in (_CHANGE, 1 / _CHANGE))
        measured = mean_latencies(pd.concat([as_sent(one.run).requests for one in tests]))
        half = _log(1 + (steps.error_high or 0.0), 1 + (steps.error_low or 0.0)) / 2
        whole = {}
        for name, mean_s in measured.items():
            elasticity = _log(slower[name], faster[name]) / (2 * math.log(_CHANGE))
            off = _log(at_speed[name], mean_s)
            bound = steps.error_high if off > 0 else steps.error_low
            allowed = elasticity * math.log1p(bound or 0.0)
            explained = min(1.0, max(0.0, allowed / off)) if off else 1.0
            means_s = at_speed[name], corrected[name], mean_s
            whole[name] = cls(*means_s, elasticity, explained, math.expm1(abs(elasticity) * half))
        return whole


def _log(value: float, other: float) -> float:
    """Return the logarithm of a ratio; 0 where it has none."""
    return math.log(value / other) if value > 0 and other > 0 else 0.0
