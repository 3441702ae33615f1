"""How near requests come to their limits."""

import numpy as np
import pandas as pd
import pytest

from servetwin.sim.records.metrics import SLO, margins

LIMITS = SLO(ttft_s=0.5, tpot_s=0.05)


def test_a_margin_is_the_worst_limit_and_agrees_with_the_slo() -> None:
    nan = float("nan")
    frame = pd.DataFrame({
        "ttft_s": [0.4, 0.5, 0.6, 0.1, 0.1, 0.1],
        "tpot_s": [0.01, 0.05, 0.01, 0.06, nan, 0.01],
        "e2e_s": 1.0,
        "status": ["finished"] * 5 + ["failed"],
    })  # fmt: skip
    found = margins(frame, LIMITS)
    assert found.tolist() == pytest.approx([0.8, 1.0, 1.2, 1.2, 0.2, np.inf])
    assert (found <= 1).tolist() == LIMITS.met(frame).tolist()
