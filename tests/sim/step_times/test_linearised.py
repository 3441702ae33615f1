"""A step-time model as coefficients."""

import pytest

from servetwin.sim.experiments.stamp_fit import FITTED
from servetwin.sim.step_times.linearised import linearised
from servetwin.sim.step_times.step_time import LinearStepTime


def test_a_sum_of_the_features_is_found_again() -> None:
    truth = {
        "constant": 8e-3, "decode_sequences": 2e-5, "prefill_chunks": 1e-4, "rows_from_0": 1e-5,
        "rows_from_128": 3e-5, "rows_from_256": 4e-5, "decode_context_tokens": 8e-8,
        "prefill_pairs": 1e-9,
    }  # fmt: skip
    found = linearised(LinearStepTime.of(truth), FITTED)
    assert found == pytest.approx(truth, rel=1e-3)


def test_none_is_negative() -> None:
    truth = {"constant": 8e-3, "rows_from_0": 0.0, "rows_from_256": 4e-5}
    found = linearised(LinearStepTime.of(truth), ("constant", "rows_from_0"))
    assert min(found.values()) >= 0
