"""Messages between processes, as they are here."""

from unittest.mock import Mock

import pytest

pytest.importorskip("torch")

from servetwin.engine import machine_rates
from servetwin.engine.machine_rates import LinkRates


@pytest.mark.slow
def test_a_sum_takes_time_and_a_large_one_more() -> None:
    rates = machine_rates.link_rates()
    assert 1e-6 < rates.latency_s < 0.1
    assert 1e6 < rates.bytes_per_s < 1e12


@pytest.mark.parametrize(
    ("small_s", "large_s", "bytes_per_s"),
    [
        (1e-3, 2e-3, 4 * ((1 << 18) - 512) / 1e-3),
        (2e-3, 1e-3, 4 * (1 << 18) / 2e-3),
        (-1e-3, -2e-3, 4 * (1 << 18) / 1e-5),
    ],
    ids=["measured", "disturbed", "nothing"],
)
def test_a_rate_of_disturbed_sums_is_a_bound(
    small_s: float, large_s: float, bytes_per_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([small_s, large_s] * 8)
    monkeypatch.setattr(machine_rates, "_sum_s", lambda *_: next(times))
    monkeypatch.setattr(machine_rates, "Followers", Mock())
    rate = pytest.approx(bytes_per_s)
    expected = LinkRates(max(small_s, 0.0), rate)  # type: ignore[arg-type]
    assert machine_rates.link_rates() == expected
