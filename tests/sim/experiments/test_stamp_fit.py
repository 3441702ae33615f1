"""Fitting step times to the stamps of requests of a server that is known."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import pytest

from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.sim.core.simulate import simulate
from servetwin.sim.experiments.stamp_fit import FITTED, REQUEST_S, fit_stamps
from servetwin.sim.step_times.step_time import ApiLatency, LinearStepTime
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

TRUTH = {
    "constant": 1e-2, "decode_sequences": 2e-5, "prefill_chunks": 1e-4, "rows_from_0": 2e-5,
    "rows_from_128": 3e-5, "rows_from_256": 5e-5, "decode_context_tokens": 2e-7,
    "prefill_pairs": 2e-9,
}  # fmt: skip
CONFIG = PolicyConfig(batching="chunked", max_seqs=16, token_budget=1024, kv_tokens=1 << 30)
BUSY = Trace(
    tuple(Request(f"r{i}", 0.05 * i, 40 + 97 * i % 700, 30 + 31 * i % 90) for i in range(80)),
    "made",
)
ALONE = Trace(tuple(Request(f"r{i}", 10.0 * i, 100, 40) for i in range(60)), "made")


def measured(trace: Trace, truth: Mapping[str, float], request_s: float = 0.0) -> pd.DataFrame:
    model, api = LinearStepTime.of(truth), ApiLatency(request_s)
    return simulate(trace, build_scheduler(CONFIG), model, api=api).requests


def test_the_latencies_of_a_busy_server_are_found_again() -> None:
    stamps, done = measured(BUSY, TRUTH), list[int]()
    fit = fit_stamps(BUSY, CONFIG, stamps, on_simulation=done.append)
    assert done == list(range(1, fit.simulations + 1))
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        assert fit.run.requests[name].mean() == pytest.approx(stamps[name].mean(), rel=0.01)
    assert fit.coefficients["constant"] == pytest.approx(TRUTH["constant"], rel=0.1)
    assert "constant" in fit.identified
    assert len(fit.singular_values) == len(FITTED)


def test_one_request_at_a_time_shows_next_to_nothing_of_batches() -> None:
    fit = fit_stamps(ALONE, CONFIG, measured(ALONE, TRUTH))
    assert "constant" in fit.identified
    unknown = {"rows_from_128", "rows_from_256", "prefill_pairs"}
    assert not unknown & set(fit.identified)
    assert fit.singular_values[0] > 100 * fit.singular_values[-1]


def test_a_prior_holds_what_the_log_does_not_show() -> None:
    fit = fit_stamps(ALONE, CONFIG, measured(ALONE, TRUTH), prior=TRUTH)
    for name in ("rows_from_256", "prefill_pairs"):
        assert fit.coefficients[name] == pytest.approx(TRUTH[name], rel=0.1)
        assert fit.deviations[name] == pytest.approx(0.35, abs=0.1)


def test_the_latency_of_the_api_is_told_apart_from_steps() -> None:
    fit = fit_stamps(BUSY, CONFIG, measured(BUSY, TRUTH, request_s=0.2), with_api=True)
    assert fit.coefficients[REQUEST_S] == pytest.approx(0.2, rel=0.25)


def test_draws_keep_the_sums_that_the_log_shows() -> None:
    """A log shows the latency that all parts make together better than any part."""
    fit = fit_stamps(BUSY, CONFIG, measured(BUSY, TRUTH))
    draws, rng = np.array(fit.draws), np.random.default_rng(0)
    shuffled = np.column_stack([rng.permutation(column) for column in draws.T])
    spreads = []
    for some in (draws, shuffled):
        models = (LinearStepTime.of(dict(zip(FITTED, draw, strict=True))) for draw in some)
        runs = (simulate(BUSY, build_scheduler(CONFIG), model) for model in models)
        spreads.append(np.std([run.requests["e2e_s"].mean() for run in runs]))
    assert spreads[0] < 0.5 * spreads[1]
    assert "decode_sequences" not in fit.identified
    assert min(min(draw) for draw in fit.draws) >= 0
    assert 1 <= sum(value > 1 for value in fit.singular_values) < len(FITTED)


@pytest.mark.slow
def test_draws_are_repeatable_and_scatter_as_the_deviations_say() -> None:
    stamps = measured(BUSY, TRUTH)
    fits = [fit_stamps(BUSY, CONFIG, stamps, seed=seed) for seed in (1, 1, 2)]
    assert fits[0].draws == fits[1].draws
    assert fits[0].draws != fits[2].draws
    assert fits[0].coefficients == fits[2].coefficients
