"""Sweeps of a server that is a formula: no load is sent."""

from dataclasses import replace
from math import exp

from servetwin.loadtest.sweep.attainment import Attainment
from servetwin.loadtest.sweep.knee import Knee
from servetwin.loadtest.sweep.level import COMPLETED, FIGURES, SHARE, TOKENS, Level, LevelPlan
from servetwin.loadtest.sweep.run_sweep import SweepBudget, run_sweep
from servetwin.loadtest.sweep.sweep import Sweep, SweepOf, SweepSettings
from servetwin.sim.records.metrics import SLO

SATURATION_PER_S = 10.0
ABOUT = {"model": "formula", "base_url": "http://nowhere/v1", "trace": "made", "load": {}}


def settings(of: SweepOf = "slo", **more: float) -> SweepSettings:
    return SweepSettings(of, 400, slo=SLO(ttft_s=0.5), **{"wanted": 0.95, **more})  # type: ignore[arg-type]


def level_of(
    plan: LevelPlan, attempts: int = 1, _: SLO | None = None, limited_by: tuple[str, ...] = ()
) -> Level:
    """A share of 97.5 % at 5/s; it falls as the rate grows."""
    done = {"synchronous": 1.0, "throughput": SATURATION_PER_S}.get(plan.kind, plan.rate_per_s)
    share = 1 - 0.05 / (1 + exp(5.0 - (done or 1.0))) if plan.kind != "throughput" else 0.1
    figures = {**dict.fromkeys(FIGURES, 0.1), COMPLETED: done, TOKENS: 50.0, SHARE: share}
    near = Attainment(share, share - 0.02, min(1.0, share + 0.02), 400, 400.0)
    predicted = {**figures, SHARE: share - 0.001}
    return Level(plan, 400, 0, attempts, limited_by, figures, near, 8.0, predicted)


def swept(of: SweepOf = "slo", load_tests: float = 24, **more: float) -> Sweep:
    """A whole sweep of the formula."""
    begun = Sweep(settings(of, **more), predicted=Knee(5.2, 5.0, 5.4), about=ABOUT)
    budget = SweepBudget(load_tests=load_tests)
    return run_sweep(begun, budget, level_of, lambda _: None)


def with_late_level(sweep: Sweep) -> Sweep:
    """The same with its last level not counting."""
    *first, last = sweep.levels
    return replace(sweep, levels=(*first, replace(last, limited_by=("CPU 99%",))))
