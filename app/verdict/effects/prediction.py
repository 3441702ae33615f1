"""Predict what a technique changes on a calibrated engine, from its formula.

Each replication draws one bootstrap fit of the calibration, its roofline and the noise, and
simulates both sides with them: common random numbers. A technique of policies alone leaves the step
times as they were calibrated.

Fit a roofline to the step times of a calibrated engine, so that its parts are known.

A calibration knows how long a batch takes, not how much of that reads weights, reads keys and
values, multiplies, or is overhead. A roofline of the same model on the measured peaks of the
machine has these parts; what is achieved of the peaks is fitted so that both agree on batches of
the size that was measured. Each bootstrap draw of the calibration gets a fit of its own, to batches
drawn anew: where a roofline does not have the form of the engine, the fits differ, and so do the
effects that are predicted from them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from servetwin.app.verdict.effects.sides import EffectLoads, Figures, Sides, figures_of, ratios
from servetwin.policies.batch import BatchShape
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.step_record import StepRecord
from servetwin.sim.experiments.predict import Interval
from servetwin.sim.experiments.scenario import Scenario, replicate
from servetwin.sim.step_times.acceptance import Acceptance, OrderedAcceptance
from servetwin.sim.step_times.profile import ApiLatencyFit, Profile, StepTimeFit
from servetwin.sim.step_times.protocol import FloatArray, StepTime
from servetwin.sim.step_times.provenance import Origin
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.efficiency import Efficiency, fit_efficiency
from servetwin.sim.step_times.roofline.step_time import roofline_step_time
from servetwin.sim.step_times.server_model import ServerModel, UnmeasuredServer
from servetwin.sim.step_times.step_time import NoiseSample
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import Technique

_DECODES = (1, 2, 4, 8, 16, 32)
_CONTEXTS = (32, 128, 512)
_CHUNKS = (8, 32, 64, 128, 256, 512)
_KNEES = (1.0, 8.0)
_LEAST = 1e-3
# Of torch's matrix rate: some kernels are faster.
_MOST_COMPUTE = 4.0
# Of the measured bandwidth. The engine reads the weights of one row about as fast as memory allows,
# faster only from a cache: what a step takes beyond that is overhead. Without these bounds a
# calibration cannot tell the two apart.
_MEMORY = (0.85, 1.5)

# Of what matrix products reach: softmax and small matrices are slow on a CPU.
_ATTENTION = (0.02, 2.0)


def fitted_shapes(ranges: Mapping[str, float], max_seqs: int) -> list[BatchShape]:
    """Return batches of decodes, of a prompt, and of both, within what was measured."""
    rows = sum(value for name, value in ranges.items() if name.startswith("rows_from_"))
    context = ranges.get("decode_context_tokens", 0.0)
    decodes = [
        BatchShape(n, n * length, n, (), decode_contexts=(length,) * n)
        for n in _DECODES
        for length in _CONTEXTS
        if n <= max_seqs and n * length <= (context or n * length)
    ]
    chunks = [n for n in _CHUNKS if n <= (rows or n)]
    prompts = [BatchShape(0, 0, 0, ((0, n),)) for n in chunks]
    mixed = [
        shape._replace(prefill_chunks=((0, n),))
        for shape in decodes[::3]
        for n in chunks[::2]
        if shape.decode_sequences + n <= (rows or n)
    ]
    return decodes + prompts + mixed


def fit_calibration(
    deployment: Deployment,
    times: StepTime,
    shapes: Sequence[BatchShape],
    start: Efficiency | None = None,
) -> Efficiency:
    """Return what ``deployment`` must achieve of its peaks to take the ``times`` of a calibration.

    Compute and memory shares, the overhead of a step, the knee, and what attention reaches beside
    matrix products. ``start`` is a fit nearby, which makes this one quick.
    """
    measured_s = np.array([float(times.seconds(shape)[0]) for shape in shapes])
    shortest_s = float(measured_s.min())

    def seconds(efficiency: Efficiency) -> FloatArray:
        model = roofline_step_time(replace(deployment, efficiency=efficiency))
        return np.array([float(model.seconds(shape)[0]) for shape in shapes])

    least = Efficiency(_LEAST, _MEMORY[0], 0.0, _KNEES[0], attention=_ATTENTION[0])
    most = Efficiency(_MOST_COMPUTE, _MEMORY[1], shortest_s, _KNEES[1], attention=_ATTENTION[1])
    starts = [start or Efficiency(overhead_s=0.3 * shortest_s)]
    return fit_efficiency(seconds, measured_s, (least, most), starts, smooth=0.02, evaluations=40)


_HALVINGS = 20


def needs_acceptance(sides: Sides) -> bool:
    """Return whether the technique drafts, with an acceptance that was not given."""
    technique = sides.technique
    given = any(technique.is_given(name) for name in ("alpha", "reach"))
    return "alpha" in type(technique).model_fields and not given


def with_measured_acceptance(sides: Sides, steps: Sequence[StepRecord]) -> Sides:
    """Return ``sides`` with the ``alpha`` of the technique as the steps of a log have it.

    Unchanged where that is not needed, or where the log has no whole pass.
    """
    technique = sides.technique
    accepted = mean_accepted(steps)
    if accepted is None or not needs_acceptance(sides):
        return sides
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        law = _with_alpha(technique, sides.without.setup, middle).acceptance
        assert isinstance(law, OrderedAcceptance)
        low, high = (middle, high) if sum(law.reach) < accepted else (low, middle)
    setup = _with_alpha(technique, sides.without.setup, (low + high) / 2)
    return replace(sides, with_it=replace(sides.with_it, setup=setup))


def mean_accepted(steps: Sequence[StepRecord]) -> float | None:
    """Return the mean accepted tokens of the passes that drafted the most; None without any.

    The last passes of an answer draft fewer.
    """
    passes = [(drafted, accepted) for step in steps for _, drafted, accepted in step.drafts]
    most = max((drafted for drafted, _ in passes), default=0)
    whole = [accepted for drafted, accepted in passes if drafted == most]
    return sum(whole) / len(whole) if most else None


def _with_alpha(technique: Technique, setup: Setup, alpha: float) -> Setup:
    return technique.model_copy(update={"alpha": alpha}).apply(setup)


class ChangedStepTime:
    """The step times of one calibration and one fit, with a technique.

    The time of a batch with the technique is that of the roofline with it, and what the calibration
    found beyond the roofline without it stays::

        t = r_with min(1, c / r_without) + max(0, c - r_without)

    c is the calibrated time of the batch, r the fitted roofline's. What a roofline does not know,
    such as an overhead for every sequence, no technique shortens; where it is too slow for a batch,
    both sides are by as much.
    """

    wants_contexts = True

    def __init__(
        self, calibrated: StepTime, without: StepTime, with_it: StepTime, factor: float = 1.0
    ) -> None:
        self._calibrated, self._without, self._with_it = calibrated, without, with_it
        self._factor = factor

    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        """Return the seconds of ``steps`` repetitions.

        Without the technique, rows that verify drafts are rows of a prompt.
        """
        plain = shape._replace(drafted_chunks=0)
        calibrated_s = self._calibrated.seconds(plain, steps)
        without_s = self._without.seconds(plain, steps)
        with_s = self._with_it.seconds(shape, steps)
        known = np.minimum(1.0, calibrated_s / without_s)
        changed_s = with_s * known + np.maximum(0.0, calibrated_s - without_s)
        return np.asarray(self._factor * changed_s)


@dataclass(frozen=True, slots=True)
class ChangedServer(UnmeasuredServer):
    """The engine of ``profile`` with a technique: a ``ServerModel``, and its own step times.

    Entry i of ``efficiencies`` is for draw i of ``fit``, the last for the fit itself. It draws what
    the fit without the technique draws, for every layout.
    """

    profile: Profile
    fit: StepTimeFit
    without: Deployment
    with_it: Deployment
    efficiencies: Sequence[Efficiency]
    policies: PolicyConfig
    acceptance: Acceptance | None = None

    def model(self) -> StepTime:
        """Return the step times of the fit itself."""
        return self._changed(None, 1.0)

    def drawn(self, rng: np.random.Generator) -> StepTime:
        """Return the step times of a random draw."""
        return self._changed(*self.fit.draw(rng))

    def _changed(self, place: int | None, drift: float) -> StepTime:
        efficiency = self.efficiencies[-1 if place is None else place]
        without, with_it = (
            roofline_step_time(replace(deployment, efficiency=efficiency))
            for deployment in (self.without, self.with_it)
        )
        return ChangedStepTime(self.fit.model_of(place), without, with_it, drift)

    def noise_factors(self) -> NoiseSample:
        """Return the noise of the engine without the technique."""
        return self.fit.noise_factors()

    def is_certain(self) -> bool:
        """Return whether all draws are equal."""
        return self.fit.is_certain()

    @property
    def name(self) -> str:
        """Name in reports."""
        return self.with_it.name

    @property
    def api(self) -> ApiLatencyFit:
        """Latency of the HTTP process, which no technique changes."""
        return self.profile.api

    @property
    def origin(self) -> Origin:
        """The origin of the engine without the technique; the change itself is a formula's."""
        return self.profile.origin

    def describe(self) -> list[str]:
        """Return what the server is."""
        return [f"{self.profile.name} with a technique: {self.name}"]

    def policy_config(self) -> PolicyConfig:
        """Return the policies with the technique."""
        return self.policies

    def kv_bytes_per_token(self) -> float:
        """Return the bytes of keys and values of a token with the technique."""
        return self.with_it.kv_bytes_per_token()


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
    config, (without, with_it) = profile.policy_config(), (sides.without, sides.with_it)
    layout = build_scheduler(config).memory.layout
    fit = profile.step_time(layout).model_copy(update={"drift": 0.0})  # it cancels in a ratio
    before, after = without.setup.deployment, with_it.setup.deployment
    base: ServerModel = profile.model_copy(  # no formula tells the layouts apart
        update={"layouts": {"paged": fit, "contiguous": fit}}
    )
    changed, efficiency = base, None
    if sides.changes_step_times:
        efficiencies = fit_draws(before, fit, config.max_seqs)
        efficiency = efficiencies[-1]
        changed = ChangedServer(
            profile, fit, before, after, efficiencies, with_it.options.policies,
            with_it.setup.acceptance,
        )  # fmt: skip
    servers = [
        (
            Scenario(replace(side.options.policies, kv_tokens=config.kv_tokens), model),
            *_memory_bytes(profile, before, side.setup.deployment),
        )
        for side, model in ((without, base), (with_it, changed))
    ]
    effects: dict[str, list[float]] = {}
    for child in np.random.SeedSequence(seed).spawn(replications):
        for name, ratio in ratios(*(_figures(loads, child, *server) for server in servers)).items():
            effects.setdefault(name, []).append(ratio)
    return PredictedEffect(
        {name: Interval.over(values) for name, values in effects.items()}, efficiency
    )


def fit_draws(deployment: Deployment, fit: StepTimeFit, max_seqs: int) -> list[Efficiency]:
    """Return an efficiency for each draw of a calibration, and at the end that of the fit."""
    shapes = fitted_shapes(fit.ranges, max_seqs)
    middle = fit_calibration(deployment, fit.model(), shapes)
    fits = []
    for place in range(len(fit.draws)):
        rng = np.random.default_rng(place)
        resampled = [shapes[i] for i in rng.integers(len(shapes), size=len(shapes))]
        fits.append(fit_calibration(deployment, fit.model_of(place), resampled, middle))
    return [*fits, middle]


def _figures(
    loads: EffectLoads,
    seed: np.random.SeedSequence,
    scenario: Scenario,
    weight_bytes: float,
    kv_bytes_per_token: float,
) -> Figures:
    """Return the figures of one replication of a side, by the bytes of weights and of a token."""
    alone, saturated = (
        replicate(load, scenario, seed, draw=True) for load in (loads.alone, loads.saturated)
    )
    free_tokens = saturated.steps["free_kv_tokens"].min()
    held_bytes = float(scenario.policies.kv_tokens - free_tokens) * kv_bytes_per_token
    return figures_of(alone, saturated, weight_bytes + held_bytes)


def _memory_bytes(
    profile: Profile, without: Deployment, with_it: Deployment
) -> tuple[float, float]:
    """Return the engine's bytes of weights and of a token's KV, as the formula changes them."""
    weight_bytes = float(profile.engine.get("weight_bytes") or without.resident_weight_bytes())
    weight_bytes *= with_it.resident_weight_bytes() / without.resident_weight_bytes()
    if not with_it.kv_cache:
        return weight_bytes, 0.0
    if not without.kv_cache:
        return weight_bytes, with_it.kv_bytes_per_token()
    keys = with_it.kv_bytes_per_token() / without.kv_bytes_per_token()
    return weight_bytes, profile.kv_bytes_per_token() * keys
