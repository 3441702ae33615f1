"""The verdict on the client: does it limit the load?"""

import numpy as np
import pandas as pd
import pytest

from servetwin.loadtest.report.records import delivered


@pytest.mark.parametrize(
    ("lag_s", "oversleep_s", "ttft_s", "tpot_s", "cpu_share", "limited_by"),
    [
        (0.001, 0.001, 0.1, 0.01, 0.25, []),
        (0.021, 0.001, 0.1, 0.01, 0.25, ["schedule lag p99 21 ms, over 20 ms"]),
        (0.021, 0.001, 3.0, 0.01, 0.25, []),
        (0.031, 0.001, 3.0, 0.01, 0.25, ["schedule lag p99 31 ms, over 30 ms"]),
        (0.001, 0.004, 3.0, 0.001, 0.25, []),
        (0.001, 0.006, 3.0, 0.001, 0.25, ["event loop late p99 6 ms, over 5 ms"]),
        (0.001, 0.011, 3.0, 0.01, 0.25, ["event loop late p99 11 ms, over 10 ms"]),
        (0.001, 0.019, 3.0, 0.05, 0.25, []),
        (0.001, 0.021, 3.0, 0.05, 0.25, ["event loop late p99 21 ms, over 20 ms"]),
        (0.001, 0.021, 3.0, np.nan, 0.25, ["event loop late p99 21 ms, over 20 ms"]),
        (0.001, 0.001, 0.1, 0.01, 0.91, ["CPU 91%"]),
    ],
)
def test_the_verdict_on_the_client(
    lag_s: float,
    oversleep_s: float,
    ttft_s: float,
    tpot_s: float,
    cpu_share: float,
    limited_by: list[str],
) -> None:
    found = delivered(sent_late(lag_s, ttft_s, tpot_s), [oversleep_s] * 5, cpu_share)
    assert found["verdict"] == ("client limited" if limited_by else "client ok")
    assert found["limited_by"] == limited_by
    assert found["offered_per_s"] == 1.0
    assert found["sent_per_s"] == pytest.approx(1.0)
    assert found["client_cpu_share"] == cpu_share


def test_nothing_is_said_of_a_client_that_sent_nothing() -> None:
    found = delivered(sent_late(np.nan, np.nan, np.nan), [0.001], 0.99)
    assert (found["verdict"], found["limited_by"]) == ("nothing sent", [])
    assert found["sent_per_s"] is None


def sent_late(lag_s: float, ttft_s: float, tpot_s: float) -> pd.DataFrame:
    scheduled = np.array([1.0, 2.0, 3.0])
    columns = {"scheduled_s": scheduled, "sent_s": scheduled + lag_s, "error": None}
    return pd.DataFrame({**columns, "ttft_s": ttft_s, "tpot_s": tpot_s})
