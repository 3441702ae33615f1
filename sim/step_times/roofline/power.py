"""The power of devices: in steps, by the bytes and FLOPs of these, and between them.

A device draws this share of its thermal design power (``tdp_watts``)::

    busy + memory sqrt(u) + compute sqrt(v), at most 1      while a step runs
    idle                                                    between steps

u is the share of the peak bandwidth that the step uses, v that of the peak FLOP/s: the traffic and
the products of the roofline (``RooflineEstimate``) over the duration of the step. Links, hosts and
cooling are left out. ``sim/catalogue/power.json`` has the shares, and by which factors whole models
and devices lay beside the fit to all others.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from servetwin.policies.batch import BatchShape
from servetwin.sim.records.columns import Columns
from servetwin.sim.step_times.roofline.decode_latency import RooflineEstimate
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.server import RooflineServer
from servetwin.sim.step_times.server_model import ServerModel
from servetwin.sim.step_times.tables.table import mean_chunks
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.program.package import shipped_json

POWER: dict[str, Any] = shipped_json("sim/catalogue/power.json")
# Steps whose sizes are within 6 % are counted as one.
_OF_AN_OCTAVE = 6


def powered(server: ServerModel) -> tuple[Deployment, float]:
    """Return the deployment of a server, and the thermal design power of a device in watts.

    Raises ``PolicyError`` where one of them is not known.
    """
    if not isinstance(server, RooflineServer):
        raise PolicyError(
            f"energy: {server.name} has step times, but no bytes and FLOPs of a step; a server of "
            "--model and --gpu has them"
        )
    deployment, watts = server.deployment, server.deployment.hardware.tdp_watts
    is_spread = deployment.parallel.groups > 1 and not deployment.parallel.lockstep
    if deployment.drafting or deployment.cascade or is_spread or not deployment.kv_cache:
        raise PolicyError(
            f"energy: {deployment.name}: not with drafts, a cascade of models, expert parallel as "
            "a technique, or without a KV cache"
        )
    if watts is None:
        raise PolicyError(
            f"energy: {deployment.hardware.name} has no 'tdp_watts'; give the thermal design power "
            "of one device in its JSON, such as 700"
        )
    return deployment, watts


def full_power_s(deployment: Deployment, steps: Columns, seconds: float) -> float:
    """Return for how many seconds at its design power a device would draw as much.

    It runs ``steps`` (rows of ``Run.steps``, each as its middle) within ``seconds``, and is idle
    between them.
    """
    power, lasted_s = POWER["shares"], np.maximum(steps["end_s"] - steps["start_s"], 1e-12)
    decodes, chunks = (steps[n].astype(float) for n in ("decode_sequences", "prefill_chunks"))
    context = steps["decode_context_tokens"] / np.maximum(1, decodes) + (steps["steps"] - 1) / 2
    sizes = np.column_stack([decodes, context, chunks, *mean_chunks(steps, chunks)])
    octaves = np.rint(np.log2(np.maximum(sizes, 1)) * _OF_AN_OCTAVE) / _OF_AN_OCTAVE
    alike = np.where(sizes < 1, 0, np.rint(2**octaves)).astype(int)
    kinds, which = np.unique(alike, axis=0, return_inverse=True)
    counted_s = [peak_s(deployment, *kind) for kind in kinds.tolist()]
    peaks_s = np.reshape(counted_s, (-1, 2))[which]
    used = np.sqrt(peaks_s * (steps["steps"] / lasted_s)[:, None])
    drawn = np.minimum(1.0, power["busy"] + used @ (power["memory"], power["compute"]))
    return float(drawn @ lasted_s + power["idle"] * (seconds - lasted_s.sum()))


def peak_s(
    deployment: Deployment, decodes: int, context: int, chunks: int, rows: int, start: int
) -> tuple[float, float]:
    """Return the seconds of traffic and of products of a step, at the peaks of each device."""
    prompts = ((start, rows),) * chunks
    shape = BatchShape(
        decodes, decodes * context, decodes, prompts, decode_contexts=(context,) * decodes
    )
    step, stages = RooflineEstimate.of(deployment, shape), deployment.parallel.pipeline
    return step.memory_s / stages, step.compute_s / stages


def unmeasured(deployment: Deployment) -> Iterator[str]:
    """Yield the device and the model where the fit had none of their kind."""
    device, model = deployment.hardware.name, deployment.model.name
    if device not in POWER["devices"]:
        yield device
    if not model.startswith(tuple(POWER["families"])):
        yield model
