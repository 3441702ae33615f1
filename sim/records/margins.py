"""How near requests came to their limits."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from servetwin.sim.records.metrics import LATENCIES, SLO

Floats = npt.NDArray[np.float64]


def margins(requests: pd.DataFrame, slo: SLO) -> Floats:
    """Return the largest latency / limit of each request: at most 1 where it keeps the SLO."""
    worst = np.zeros(len(requests))
    for name in LATENCIES:
        if (limit := getattr(slo, name)) is not None:
            worst = np.fmax(worst, requests[name].to_numpy(float) / limit)
    return np.where(requests["status"].to_numpy() == "finished", worst, np.inf)
