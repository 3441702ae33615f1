"""What no server can beat: the data sheet. Every roofline run is checked against it.

A step of T tokens takes at least 2 P T / F and at least the time to read every weight that it must
read once; so output throughput never exceeds F / (2 P), nor what the bandwidth allows.
"""

from typing import TYPE_CHECKING

import numpy as np

from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.workloads.errors import ServetwinError

if TYPE_CHECKING:
    import pandas as pd

_ROUNDING = 1e-9


class BoundBroken(ServetwinError):
    """A simulated step was faster than its device can be."""


def check_bounds(steps: "pd.DataFrame", deployment: Deployment) -> None:
    """Check every row of ``steps`` (``sim.core.recorder.STEP_COLUMNS``).

    Raises ``BoundBroken`` with the first step that is too fast.
    """
    elapsed_s = (steps["end_s"] - steps["start_s"]).to_numpy(float)
    rows = (steps["rows"] * steps["steps"]).to_numpy(float)
    least_s = np.maximum(
        rows * least_token_s(deployment), steps["steps"].to_numpy(float) * least_read_s(deployment)
    )
    slack = _ROUNDING * np.maximum(1.0, steps["end_s"].to_numpy(float))
    broken = np.flatnonzero(elapsed_s < least_s - slack)
    if len(broken):
        first = int(broken[0])
        raise BoundBroken(
            f"step row {steps.index[first]} at {steps['start_s'].iloc[first]:.6f} s took "
            f"{elapsed_s[first] * 1e3:.6g} ms; {deployment.name} needs at least "
            f"{least_s[first] * 1e3:.6g} ms for its {rows[first]:.0f} tokens"
        )


def least_token_s(deployment: Deployment) -> float:
    """Return 2 P / F, the share of one token in a step: its layers, not the head."""
    return float(min(_token_s(deployment, has_prefill) for has_prefill in (False, True)))


def least_read_s(deployment: Deployment) -> float:
    """Return the seconds to read the weights that any step needs, over all devices."""
    weight_bytes = min(deployment.prefill.weight_bytes, deployment.decode.weight_bytes)
    params = _least_params(deployment)
    bandwidth = deployment.hardware.memory_bytes_per_s * deployment.parallel.devices
    return params * weight_bytes / bandwidth


def _token_s(deployment: Deployment, has_prefill: bool) -> float:
    form = deployment.prefill if has_prefill else deployment.decode
    peak = deployment.hardware.peak(form.compute) * deployment.parallel.devices
    skipping = max(1.0, form.compute_share)  # a sparse product computes a part of its FLOPs
    return 2 * _least_params(deployment) / (peak * skipping)


def _least_params(deployment: Deployment) -> float:
    """Return the weights of the layers that the least demanding token, or row, uses."""
    params = deployment.model.active_linear_params()
    if deployment.early_exit:
        params *= min(depth for depth, _ in deployment.early_exit.exits)
    if deployment.drafting:
        params *= deployment.drafting.verified_share
    if deployment.cascade:
        params = min(params, deployment.cascade.small.active_linear_params())
    return params
