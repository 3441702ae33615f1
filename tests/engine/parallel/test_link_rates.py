"""Messages between processes, as they are here."""

import pytest

pytest.importorskip("torch")

from servetwin.engine.machine_rates import link_rates


def test_a_sum_takes_time_and_a_large_one_more() -> None:
    rates = link_rates()
    assert 1e-6 < rates.latency_s < 0.1
    assert 1e6 < rates.bytes_per_s < 1e12
