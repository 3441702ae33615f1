"""How long the prompts of other requests stall decodes.

A step with prefill chunks stalls its decodes for the time that its chunks add; a step of chunks
alone stalls them for all of its time. The step-time model gives the duration of the step without
chunks. If the model is not known, that duration is interpolated, in time, between the steps without
chunks before and after.
"""

import numpy as np
import pandas as pd

from servetwin.policies.batch import BatchShape
from servetwin.sim.explain.step_rows import StepRows
from servetwin.sim.step_times.step_time import FloatArray, StepTime


class Stalls:
    """The stalls in the steps of one replica."""

    def __init__(self, steps: StepRows, model: StepTime | None) -> None:
        self._model = model
        quiet = steps.frame[steps.frame["prefill_chunks"] == 0]
        self._quiet_s = ((quiet["start_s"] + quiet["end_s"]) / 2).to_numpy(float)
        self._quiet_step_s = ((quiet["end_s"] - quiet["start_s"]) / quiet["steps"]).to_numpy(float)

    @property
    def known(self) -> bool:
        """Whether there is a model, or a step without chunks to estimate from."""
        return self._model is not None or len(self._quiet_s) > 0

    def stalled_s(self, rows: pd.DataFrame) -> float:
        """Return the seconds for which a sequence that decodes in all ``rows`` is stalled."""
        if not self.known:
            return 0.0
        mixed = rows[rows["prefill_chunks"] > 0]
        lasted_s = (mixed["end_s"] - mixed["start_s"]).to_numpy(float)
        alone_s = np.where(mixed["decode_sequences"] > 0, self._alone_s(mixed), 0.0)
        return float((lasted_s - np.minimum(alone_s, lasted_s)).sum())

    def _alone_s(self, mixed: pd.DataFrame) -> FloatArray:
        if self._model is not None:
            return _modelled_s(self._model, mixed)
        middle_s = ((mixed["start_s"] + mixed["end_s"]) / 2).to_numpy(float)
        steps = mixed["steps"].to_numpy(float)
        step_s: FloatArray = np.interp(middle_s, self._quiet_s, self._quiet_step_s)
        return steps * step_s


def _modelled_s(model: StepTime, mixed: pd.DataFrame) -> FloatArray:
    columns = mixed[["decode_sequences", "decode_context_tokens", "steps"]]
    alone_s = [
        model.seconds(BatchShape(decodes, context, decodes), steps).sum()
        for decodes, context, steps in columns.itertuples(index=False)
    ]
    return np.array(alone_s)
