"""Predict what a technique changes on a calibrated engine, from its formula.

Each replication draws one bootstrap fit of the calibration, its roofline and the noise, and
simulates both sides with them: common random numbers. A technique of policies alone leaves the step
times as they were calibrated.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from servetwin.app.verdict.effects.changed_server import ChangedServer, ChangedSteps
from servetwin.app.verdict.effects.figures import Figures, figures_of, ratios
from servetwin.app.verdict.effects.loads import EffectLoads
from servetwin.app.verdict.effects.roofline_fit import fit_efficiency, fitted_shapes
from servetwin.app.verdict.effects.sides import Side, Sides
from servetwin.policies.registry import build_scheduler
from servetwin.sim.experiments.predict import Interval
from servetwin.sim.experiments.scenario import Scenario, replicate
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.profile import Profile, StepTimeFit
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.efficiency import Efficiency
from servetwin.sim.step_times.server_model import ServerModel
from servetwin.workloads.trace import Trace

REPLICATIONS = 20


@dataclass(frozen=True, slots=True)
class PredictedEffect:
    """The predicted ratio with / without of each metric, and what the roofline rests on."""

    ratios: Mapping[str, Interval]
    efficiency: Efficiency | None = None
    """What the base engine achieves of the measured peaks; None where no roofline is needed."""


def predict_effect(
    sides: Sides,
    profile: Profile,
    loads: EffectLoads,
    *,
    seed: int = 0,
    replications: int = REPLICATIONS,
) -> PredictedEffect:
    """Return the effect of a technique on the engine that ``profile`` calibrated without it."""
    config = profile.policy_config()
    layout = build_scheduler(config).memory.layout
    fit = profile.step_time(layout).model_copy(update={"drift": 0.0})  # it cancels in a ratio
    without: ServerModel = _whatever_layout(profile, fit)
    with_it = without
    efficiency = None
    if sides.changes_step_times:
        before, after = sides.without.setup.deployment, sides.with_it.setup.deployment
        efficiencies = fit_draws(before, fit, config.max_seqs)
        efficiency = efficiencies[-1]
        steps = ChangedSteps(fit, before, after, efficiencies)
        policies = sides.with_it.options.policies
        with_it = ChangedServer(profile, steps, policies, sides.with_it.setup.acceptance)
    servers = _Server(sides.without, without), _Server(sides.with_it, with_it)
    memory = [
        _Memory.of(profile, sides.without.setup.deployment, side.setup.deployment)
        for side in (sides.without, sides.with_it)
    ]
    found: dict[str, list[float]] = {}
    for child in np.random.SeedSequence(seed).spawn(replications):
        figures = [
            server.figures(config.kv_tokens, loads, room, child)
            for server, room in zip(servers, memory, strict=True)
        ]
        for name, ratio in ratios(*figures).items():
            found.setdefault(name, []).append(ratio)
    return PredictedEffect(
        {name: Interval.over(values) for name, values in found.items()}, efficiency
    )


def fit_draws(deployment: Deployment, fit: StepTimeFit, max_seqs: int) -> list[Efficiency]:
    """Return an efficiency for each draw of a calibration, and at the end that of the fit."""
    shapes = fitted_shapes(fit.ranges, max_seqs)
    middle = fit_efficiency(deployment, fit.model(), shapes)
    found = []
    for place in range(len(fit.draws)):
        rng = np.random.default_rng(place)
        drawn = [shapes[i] for i in rng.integers(len(shapes), size=len(shapes))]
        found.append(fit_efficiency(deployment, fit.model_of(place), drawn, middle))
    return [*found, middle]


def _whatever_layout(profile: Profile, fit: StepTimeFit) -> Profile:
    """Return the profile with its step times for both layouts: no formula tells them apart."""
    return profile.model_copy(update={"layouts": {"paged": fit, "contiguous": fit}})


@dataclass(frozen=True, slots=True)
class _Memory:
    """The bytes of the weights, and of the keys and values of a token."""

    weight_bytes: float
    kv_bytes_per_token: float

    @classmethod
    def of(cls, profile: Profile, without: Deployment, with_it: Deployment) -> "_Memory":
        """Return what the engine of ``profile`` has, changed as the formula changes it."""
        had = float(profile.engine.get("weight_bytes") or without.resident_weight_bytes())
        weights = with_it.resident_weight_bytes() / without.resident_weight_bytes()
        if not with_it.kv_cache:
            return cls(had * weights, 0.0)
        if not without.kv_cache:
            return cls(had * weights, with_it.kv_bytes_per_token())
        keys = with_it.kv_bytes_per_token() / without.kv_bytes_per_token()
        return cls(had * weights, profile.kv_bytes_per_token() * keys)


@dataclass(frozen=True, slots=True)
class _Server:
    side: Side
    model: ServerModel

    def figures(
        self, kv_tokens: int, loads: EffectLoads, memory: _Memory, seed: np.random.SeedSequence
    ) -> Figures:
        """Return the figures of one replication on ``kv_tokens`` of memory."""
        policies = replace(self.side.options.policies, kv_tokens=kv_tokens)
        scenario = Scenario(policies, self.model)
        alone, saturated = (_run(load, scenario, seed) for load in (loads.alone, loads.saturated))
        held = policies.kv_tokens - saturated.steps["free_kv_tokens"].min()
        held_bytes = float(held) * memory.kv_bytes_per_token
        return figures_of(alone, saturated, memory.weight_bytes + held_bytes)


def _run(load: Trace, scenario: Scenario, seed: np.random.SeedSequence) -> Run:
    """Return a run with the draws of ``seed``, as if it had never spawned."""
    again = np.random.SeedSequence(seed.entropy, spawn_key=seed.spawn_key)
    return replicate(load, scenario, again, draw=True)
