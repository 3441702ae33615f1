"""The verdict on the effect of a technique says where its step times come from."""

import pytest

from servetwin.app.reports.techniques.verification import effect_lines
from servetwin.app.verdict.effects.prediction import PredictedEffect
from servetwin.app.verdict.effects.sides import Figures
from servetwin.app.verdict.effects.verification import EffectVerification
from servetwin.sim.experiments.predict import Interval
from servetwin.sim.step_times.roofline.efficiency import Efficiency
from tests.support.known_effects import PROFILE, sides

NAMES = ("ttft_alone", "tpot_alone", "throughput")


@pytest.mark.parametrize(
    ("efficiency", "said"),
    [
        (
            Efficiency(),
            "step times without it: measured here; what it changes: computed from data sheets",
        ),
        (None, "the step times are those of the calibration (measured here)"),
    ],
)
def test_what_was_measured_and_what_a_formula_adds(
    efficiency: Efficiency | None, said: str
) -> None:
    ratios = {name: Interval(0.7, 0.69, 0.71) for name in NAMES}
    runs: list[Figures] = [dict.fromkeys(NAMES, 2.0)]
    found = EffectVerification(sides(), PROFILE, PredictedEffect(ratios, efficiency), runs, runs)
    lines = effect_lines(found)
    assert any(said in line for line in lines)
    assert max(map(len, lines)) <= 100
