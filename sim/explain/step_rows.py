"""The steps of one replica, found by time."""

import numpy as np
import pandas as pd

from servetwin.sim.core.recorder import STEP_COLUMNS
from servetwin.sim.step_times.step_time import FloatArray

SLACK_S = 1e-7
"""Stamps that differ by no more are equal: those of requests are rounded a few more times."""


class StepRows:
    """The rows of ``Run.steps`` of one replica, in the order of time."""

    def __init__(self, steps: pd.DataFrame) -> None:
        self.frame = steps
        self.start_s: FloatArray = steps["start_s"].to_numpy(float)
        self.end_s: FloatArray = steps["end_s"].to_numpy(float)

    def within(self, start_s: float, end_s: float) -> pd.DataFrame:
        """Return the rows inside an interval."""
        first = np.searchsorted(self.start_s, start_s - SLACK_S)
        last = np.searchsorted(self.end_s, end_s + SLACK_S, "right")
        return self.frame.iloc[first:last]

    def touching(self, start_s: float, end_s: float) -> pd.DataFrame:
        """Return the rows that overlap an interval."""
        first = np.searchsorted(self.end_s, start_s, "right")
        last = np.searchsorted(self.start_s, end_s)
        return self.frame.iloc[first:last]

    def next_start_s(self, stamps_s: FloatArray) -> FloatArray:
        """Return the first start of a row at or after each stamp; infinite if there is none."""
        place = np.searchsorted(self.start_s, stamps_s - SLACK_S)
        return np.append(self.start_s, np.inf)[place]


def by_replica(steps: pd.DataFrame) -> dict[int, StepRows]:
    """Return the rows of every replica; none if the run has no steps with all their columns."""
    if not set(STEP_COLUMNS) <= set(steps.columns):
        return {}
    ordered = steps.sort_values(["start_s", "end_s"], kind="stable")
    replicas = ordered["replica"].unique().tolist()
    rows = [StepRows(rows) for _, rows in ordered.groupby("replica", sort=False)]
    return dict(zip(replicas, rows, strict=True))
