"""The whole loop on engines whose effect is known: processes, HTTP and step logs are real."""

import json
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from servetwin.app.serving.engines import LiveEngine
from servetwin.app.verdict.claims import compare_metric
from servetwin.app.verdict.effects.prediction import ChangedServer, PredictedEffect, fit_draws
from servetwin.app.verdict.effects.sides import Figures, Side
from servetwin.app.verdict.effects.verification import (
    EFFECT,
    EffectPlan,
    EffectVerification,
    EffectVerifier,
    MetricEffect,
    memory_bytes,
)
from servetwin.policies.batch import BatchShape
from servetwin.sim.experiments.predict import Interval
from servetwin.sim.step_times.protocol import FloatArray, StepTime
from tests.support.known_effects import LOADS, PROFILE, sides, simulated

pytest.importorskip("uvicorn")

FIT = PROFILE.step_time("paged")
INT8_BYTES = 20_000_000.0


def predicted_times() -> StepTime:
    """Return the step times that the formula of weight-int8 predicts."""
    both = sides()
    before, after = both.without.setup.deployment, both.with_it.setup.deployment
    return ChangedServer(
        PROFILE, FIT, before, after, fit_draws(before, FIT, 8), PROFILE.policy_config()
    ).model()


def verified(folder: Path, with_it: StepTime) -> EffectVerification:
    said: list[str] = []
    plan = EffectPlan(pairs=1, replications=2)
    models = {"fp32": FIT.model(), "int8": with_it}
    bytes_of = {"fp32": 4 * INT8_BYTES, "int8": INT8_BYTES}

    def start(side: Side) -> AbstractContextManager[LiveEngine]:
        form = side.setup.deployment.decode.name
        return simulated(folder / form, models[form], weight_bytes=bytes_of[form])

    found = EffectVerifier(sides(), start, LOADS, plan, said.append, PROFILE).run()
    assert said == [
        "weight-int8: predicting", "weight-int8: pair 1 of load tests, without and with",
    ]  # fmt: skip
    return found


def tpot(found: EffectVerification) -> tuple[float, float]:
    """Return the predicted and the measured ratio of TPOT, alone."""
    (row,) = (e.comparison for e in found.effects if e.comparison.metric == "tpot_alone")
    assert row.predicted
    assert row.measured
    return row.predicted.value, row.measured


@pytest.mark.quiet
def test_an_effect_as_predicted_holds_and_is_kept(tmp_path: Path) -> None:
    found = verified(tmp_path, predicted_times())
    rows = {effect.comparison.metric: effect.comparison for effect in found.effects}
    assert rows["memory"].predicted
    assert rows["memory"].measured == pytest.approx(rows["memory"].predicted.value, rel=0.02)
    assert tpot(found)[0] < 0.8
    assert tpot(found)[1] == pytest.approx(tpot(found)[0], rel=0.15)
    found.save(tmp_path / "out")
    kept = json.loads((tmp_path / "out" / EFFECT).read_text())
    assert (kept["technique"], kept["pairs"], len(kept["effects"])) == ("weight-int8", 1, 6)
    assert kept["outcome"] == found.outcome


class Between:
    """Step times half-way between two models."""

    wants_contexts = True

    def __init__(self, one: StepTime, other: StepTime) -> None:
        self.one, self.other = one, other

    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        return (self.one.seconds(shape, steps) + self.other.seconds(shape, steps)) / 2


@pytest.mark.quiet
def test_half_the_predicted_speed_up_is_measured_as_such(tmp_path: Path) -> None:
    found = verified(tmp_path, Between(FIT.model(), predicted_times()))
    predicted, measured = tpot(found)
    assert measured == pytest.approx((1 + predicted) / 2, rel=0.1)


NAMES = ("ttft_alone", "tpot_alone", "throughput")


@pytest.mark.parametrize(
    ("measured", "outcome"),
    [
        ((0.71, 0.7, 0.69), "holds"),
        ((0.86, 0.85, 0.84), "refuted"),  # half of the predicted change
        ((1.4, 0.7, 0.35), "cannot tell"),
        ((0.7,), "cannot tell"),
    ],
)
def test_the_verdict_over_pairs(measured: tuple[float, ...], outcome: str) -> None:
    predicted = PredictedEffect({name: Interval(0.7, 0.69, 0.71) for name in NAMES})
    without: list[Figures] = [dict.fromkeys(NAMES, 2.0) for _ in measured]
    with_it: list[Figures] = [dict.fromkeys(NAMES, 2 * ratio) for ratio in measured]
    found = EffectVerification(sides(), PROFILE, predicted, without, with_it)
    assert found.outcome == outcome
    assert len(found.effects) == 3


def effect_of(predicted: Interval, *measured: float) -> MetricEffect:
    return MetricEffect(compare_metric("tpot_alone", predicted, measured, [], 0.1))


@pytest.mark.parametrize(
    ("predicted", "measured", "sign", "inside"),
    [
        (0.7, (0.71, 0.7, 0.69), True, True),
        (0.7, (0.81, 0.8, 0.79), True, False),
        (0.7, (1.21, 1.2, 1.19), False, False),
        (1.0, (1.01, 1.0, 0.99), True, True),
        (1.0, (1.5, 1.1, 0.7), None, True),
        (1.3, (1.0, 1.001, 0.999), False, False),
        (0.5, (1.8, 1.1, 0.6), None, True),
    ],
)
def test_sign_and_size(
    predicted: float, measured: tuple[float, ...], sign: bool | None, inside: bool
) -> None:
    effect = effect_of(Interval(predicted, predicted * 0.98, predicted * 1.02), *measured)
    assert (effect.sign_right, effect.is_inside) == (sign, inside)


def test_one_pair_tells_nothing() -> None:
    effect = effect_of(Interval(0.7, 0.6, 0.8), 0.7)
    assert (effect.sign_right, effect.is_inside) == (None, None)
    assert effect.comparison.outcome == "cannot tell"


def test_memory_counts_every_device_and_the_draft_model() -> None:
    runner = {"weight_bytes": 100, "kv_bytes": 50, "kv_tokens": 10}
    assert memory_bytes(runner, 4) == 120
    assert memory_bytes({**runner, "tensor_parallel": 2}, 4) == 240
    assert memory_bytes({**runner, "draft_weight_bytes": 7, "draft_kv_bytes": 20}, 4) == 135
