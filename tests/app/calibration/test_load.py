"""The load of a calibration: like the trace, but other requests."""

import numpy as np
import pytest

from servetwin.app.calibration.calibrator import (
    LOAD_UTILISATION,
    load_rate_per_s,
    representative_load,
)
from servetwin.sim.experiments.capacity import saturation_rate_per_s
from servetwin.sim.step_times.profile import load_profile
from servetwin.workloads.reading import sample_trace


def test_the_load_of_a_calibration_is_like_the_trace_but_other_requests() -> None:
    trace = sample_trace()
    load = representative_load(trace, 20.0, 10.0, np.random.default_rng(0))
    assert len(load) == 200
    assert load.rate_per_s == pytest.approx(20.0, rel=0.2)
    ours, theirs = (np.mean([r.prompt_tokens for r in one]) for one in (load, trace))
    assert ours == pytest.approx(theirs, rel=0.2)
    assert not {r.request_id for r in load} & {r.request_id for r in trace}
    lengths = {(r.prompt_tokens, r.output_tokens) for r in trace}
    assert {(r.prompt_tokens, r.output_tokens) for r in load} <= lengths
    assert len(representative_load(trace, 0.5, 10.0, np.random.default_rng(0))) == 20
    assert len(representative_load(trace, 500.0, 10.0, np.random.default_rng(0))) == 400


def test_its_rate_is_near_the_capacity_of_the_profile() -> None:
    trace, profile = sample_trace(), load_profile("base-cpu")
    capacity_per_s = saturation_rate_per_s(trace, profile.policy_config(), profile)
    assert load_rate_per_s(trace, profile) == pytest.approx(LOAD_UTILISATION * capacity_per_s)
