"""Efficiencies of data sheets: of servers from published points, of experts from kernel tables.

Those of servers are fitted on half of the models, by a seed.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from importlib import resources

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from servetwin.sim.catalogue.catalogue import find_hardware
from servetwin.sim.catalogue.hardware import Hardware
from servetwin.sim.step_times.roofline.efficiency import Efficiency
from servetwin.sim.step_times.roofline.formats import CHECKPOINTS, Format
from servetwin.sim.step_times.step_time import FloatArray
from servetwin.sim.step_times.tables.kernel_library import SYSTEMS
from servetwin.workloads.errors import ServetwinError
from tests.benchmarks.black_box import say
from tests.benchmarks.published_points import NotExpressed, Point

SEED = "1"
"""Of the split by kind of model."""
START = Efficiency(
    compute=0.6, memory=0.85, experts=None, attention=0.75, overhead_s=4e-3, sequence_s=2e-5,
    chunk_s=2e-3,
)  # fmt: skip
FACTORS = {"compute": "compute", "memory": "memory", "host": "chunk_s"}
"""What is fitted as a factor on a share, or on the seconds of a chunk: hosts differ with GPUs."""
FACTOR = np.log(4.0)
"""The logarithm of the most that a fit multiplies or divides a share by."""
SECONDS = {"overhead_s": (2e-3, 30e-3), "sequence_s": (1e-5, 1e-4), "chunk_s": (5e-3, 5e-2)}
"""The unit of seconds in a fit, and the most."""
PRIOR = 0.25
"""The weight of a share's factor of e, as of so many times the root of the number of errors."""
SOFT = 0.2
"""Logarithms of errors below this count as squares, larger ones less."""
HALF_WIDTH = 250
"""The width w0 of an expert at which it reaches half: near that of the best fit of each format."""
EXPERTS = {"bf16": "bfloat16", "fp8": "fp8", "fp8-block": "fp8_block", "w4a16": "int4_wo",
           "nvfp4": "nvfp4", "mxfp4": "w4a16_mxfp4"}  # fmt: skip
TABLES = {"a100-80gb": "0.14.0", "h100": "0.24.0", "h200": "0.24.0", "b200": "0.24.0"}
"""The version of vLLM in the tables of each device."""
GPT_OSS_WIDTH = 2880
MANY_ROWS = 64
"""Of an expert: with fewer, its time is that of its weights."""


def expert_shares(package: str) -> dict[str, dict[str, float]]:
    """Return what wide experts reach of the peak, by format and device, from kernel tables.

    That is the median over all shapes whose weights are read in less than half of the time. Of
    mxfp4 the kernels of gpt-oss count, by their width.
    """
    shares: dict[str, dict[str, float]] = {}
    for device, version in TABLES.items():
        path = f"systems/data/{SYSTEMS[device]}/moe/vllm/{version}/moe_perf.parquet"
        with resources.as_file(resources.files(package).joinpath(path)) as file:
            table = pd.read_parquet(file).query("moe_ep_size == 1")
        for form, theirs in EXPERTS.items():
            rows = table[table["moe_dtype"] == theirs]
            rows = rows[(form != "mxfp4") | (rows["hidden_size"] == GPT_OSS_WIDTH)]
            share = _share(rows, find_hardware(device), CHECKPOINTS[form])
            if len(share):
                known = shares.setdefault(CHECKPOINTS[form].name, {})
                known[device] = float(f"{share.median():.3g}")
    return shares


def is_fitted(point: Point) -> bool:
    """Return whether the kind of model of a point is in the half that is fitted on."""
    return sha256(f"{SEED}{point.family}".encode()).digest()[0] % 2 == 0


def changed(start: Efficiency, names: Sequence[str], x: FloatArray) -> Efficiency:
    """Return an efficiency with factors on its shares, and with other seconds."""
    values = {
        FACTORS.get(name, name): min(1.0, getattr(start, FACTORS[name]) * float(np.exp(v - 1)))
        if name in FACTORS
        else float(v) * SECONDS[name][0]
        for name, v in zip(names, x, strict=True)
    }
    return replace(start, **values)


def fitted(
    points: Sequence[Point],
    start: Callable[[Point], Efficiency],
    names: Sequence[str],
    evaluations: int = 4,
) -> FloatArray:
    """Return what ``changed`` takes, nearest to the points: of shares, 1 + the log of a factor.

    Slopes are taken over a tenth of a value, so none may be 0.
    """

    def errors(x: FloatArray) -> FloatArray:
        logs = []
        for point in points:
            try:
                seconds = point.simulated(point.scenario(changed(start(point), names, x)))
            except (NotExpressed, ServetwinError):
                continue
            logs += [float(np.log(seconds[metric] / value)) for metric, value in point.measured]
        say(f"  {np.round(x, 3)}: median {100 * np.median(np.abs(np.expm1(logs))):.1f} %")
        prior = [
            (v - 1) * PRIOR * len(logs) ** 0.5
            for v, n in zip(x, names, strict=True)
            if n in FACTORS
        ]
        return np.array([*logs, *prior])

    bounds = [
        (1 - FACTOR, 1 + FACTOR) if name in FACTORS else (0, SECONDS[name][1] / SECONDS[name][0])
        for name in names
    ]
    first = [1.0 if name in FACTORS else getattr(START, name) / SECONDS[name][0] for name in names]
    low, high = np.array(bounds).T
    found: FloatArray = least_squares(
        errors, first, bounds=(low, high), loss="soft_l1", f_scale=SOFT, diff_step=0.1,
        x_scale=np.where(np.array([name in FACTORS for name in names]), 0.3, 1.0),
        max_nfev=evaluations,
    ).x  # fmt: skip
    return found


def _share(rows: pd.DataFrame, hardware: Hardware, form: Format) -> "pd.Series[float]":
    """Return the share of the peak of each row, at infinite width, where its products count."""
    width = rows["inter_size"] / rows["moe_tp_size"]
    each = rows["num_tokens"] * rows["topk"] / rows["num_experts"]
    weights = 3 * rows["hidden_size"] * width * rows["num_experts"]
    read_s = weights * form.weight_bytes / hardware.memory_bytes_per_s / START.memory
    lasted_s = rows["latency"] / 1e3
    counts = (each >= MANY_ROWS) & (width >= MANY_ROWS) & (read_s < lasted_s / 2)
    computed_s = (lasted_s**2 - read_s**2)[counts] ** 0.5
    peak_s = (2 * each * weights / hardware.peak(form.compute))[counts]
    return peak_s / computed_s * (1 + HALF_WIDTH / width[counts])
