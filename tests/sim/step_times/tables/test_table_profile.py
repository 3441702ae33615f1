"""A table as a server: runs, draws and certainty."""

import numpy as np
import pytest

from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.sim.core.simulate import simulate
from servetwin.sim.step_times.tables import Table, TableProfile
from servetwin.sim.step_times.tables.interpolate import Curve, Surface
from servetwin.sim.step_times.tables.published_tables import OperatorTable, OperatorTimes
from servetwin.workloads.errors import ProfileError
from servetwin.workloads.request import Request
from tests.support.measured_tables import decode_shape


def test_a_table_serves_requests_and_macro_steps_change_nothing(tables: dict[str, Table]) -> None:
    policies = PolicyConfig(max_seqs=8, kv_tokens=4096)
    requests = [Request(f"r{i}", 0.05 * i, 100 + 7 * i, 20 + i) for i in range(12)]
    for table in tables.values():
        profile = TableProfile("table", table, policies)
        model = profile.step_time("paged").model()
        runs = [
            simulate(requests, build_scheduler(policies), model, macro=macro)
            for macro in (True, False)
        ]
        assert runs[0].requests.equals(runs[1].requests)
        assert len(runs[0].steps) < len(runs[1].steps)


def test_draws_scatter_as_the_worst_part_predicts_its_unseen_points(
    tables: dict[str, Table],
) -> None:
    fit = TableProfile("table", tables["phases"], PolicyConfig()).step_time("paged")
    errors = [error.median for error in tables["phases"].held_out_errors().values() if error]
    assert len(errors) == 2
    assert fit.log_deviation == pytest.approx(max(errors) / 0.6745)
    shape = decode_shape(4, 600)
    rng = np.random.default_rng(7)
    drawn = np.array([fit.drawn(rng).seconds(shape)[0] for _ in range(400)])
    logs = np.log(drawn / fit.model().seconds(shape)[0])
    assert abs(logs.mean()) < 4 * fit.log_deviation / 20
    assert logs.std() == pytest.approx(fit.log_deviation, rel=0.15)
    assert not fit.is_certain()
    assert fit.noise_factors().factors.tolist() == [1.0]


def test_parts_that_last_a_few_ticks_do_not_make_a_table_uncertain() -> None:
    x = np.arange(1.0, 41.0)
    smooth = Surface(x, np.zeros(40), x)
    ticks = Curve(x, 1e-6 * (1 + x % 3))
    table = OperatorTable(OperatorTimes(Curve(x, x), smooth, smooth, ticks), layers=1)
    error = table.held_out_errors()["cache writes"]
    assert error is not None
    assert error.median > 0.1
    assert table.log_deviation() < 0.01


def test_a_table_too_small_to_know_its_error_is_certain() -> None:
    point = Surface(np.ones(1), np.ones(1), np.ones(1))
    curve = Curve(np.ones(1), np.ones(1))
    table = OperatorTable(OperatorTimes(curve, point, point), layers=1)
    profile = TableProfile("tiny", table, PolicyConfig(kv_tokens=99_999))
    assert profile.step_time("contiguous").is_certain()
    assert profile.policy_config().kv_tokens == 99_999
    assert "too few points" in table.summary()[0]
    with pytest.raises(ProfileError, match="tiny: kv_bytes"):
        profile.kv_bytes_per_token()
