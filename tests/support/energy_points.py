"""Published watts and joules of servers of text (ML.ENERGY), beside what our roofline says.

A point is a steady state: so many sequences decode, and each that ends makes room for a prompt.
"""

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.optimize import minimize

from servetwin.policies.batch import BatchShape
from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.catalogue.layout import Layout
from servetwin.sim.records.columns import Columns
from servetwin.sim.step_times.roofline import power
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.efficiency import served_efficiency
from servetwin.sim.step_times.roofline.parallel import Parallel
from servetwin.sim.step_times.roofline.step_time import roofline_step_time
from tests.support.paths import SHARED

POINTS = SHARED / "points" / "energy.csv"
PROMPTS = {"lm-arena-chat": 256, "gpqa": 300, "sourcegraph-fim": 1500}
"""Tasks of text alone, and about how long their prompts are: the table does not say."""


@dataclass(frozen=True)
class Point:
    """A measured steady state, its steps by the roofline, and how long a step took on average."""

    place: int
    task: str
    model: str
    deployment: Deployment
    steps: Columns
    batch: float
    measured_itl_s: float
    predicted_itl_s: float
    measured_step_s: float
    measured_joules: float

    @property
    def family(self) -> str:
        """The model without its size's ending."""
        return self.model.split("-Instruct")[0].split("-Thinking")[0]

    def lasting(self, measured: bool) -> Columns:
        """Return the steps, as long as measured (each in its predicted part), or as predicted."""
        predicted_s = self.steps["end_s"]
        total = float(self.steps["steps"].sum())
        factor = self.measured_step_s * total / predicted_s.sum() if measured else 1.0
        return self.steps | {"end_s": factor * predicted_s}

    def joules(self, measured: bool) -> float:
        """Return the predicted joules per token, by the shares of ``power.POWER``."""
        steps = self.lasting(measured)
        lasted_s = float(steps["end_s"].sum())
        of_one = power.full_power_s(self.deployment, steps, lasted_s)
        watts, devices = self.deployment.hardware.tdp_watts, self.deployment.parallel.devices
        assert watts is not None
        return watts * devices * of_one / float(steps["steps"].sum()) / self.batch


@cache
def points() -> tuple[list[Point], int]:
    """Return the points of text, and how many others were left out."""
    with POINTS.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    texts = [row for row in rows if row["task"] in PROMPTS]
    return [_point(n, row) for n, row in enumerate(texts)], len(rows) - len(texts)


def _point(place: int, row: dict[str, str]) -> Point:
    devices, tp, dp = (int(row[n]) for n in ("num_gpus", "tensor_parallel", "data_parallel"))
    if tp * dp < devices:  # the table has the degree of experts alone
        tp = devices // dp
    ep = tp * dp if int(row["expert_parallel"]) > 1 else 1
    device, model = find_hardware(row["gpu_model"]), find_model(row["model_id"])
    parallel = Parallel.of(Layout(tp=tp, dp=dp, ep=ep))
    deployment = Deployment(
        model, device, served_efficiency("vllm", device.name), parallel=parallel
    )
    batch, output = float(row["avg_batch_size"]), float(row["avg_output_len"])
    own, prompt = max(1, round(batch / dp)), PROMPTS[row["task"]]
    steps = _steady(deployment, own, prompt, output)
    itl_s = float(steps["end_s"][0] / steps["steps"][0])
    return Point(
        place, row["task"], row["model_id"], deployment, steps, batch,
        float(row["median_itl_ms"]) / 1e3, itl_s,
        batch / float(row["output_throughput_tokens_per_sec"]),
        float(row["energy_per_token_joules"]),
    )  # fmt: skip


def _steady(deployment: Deployment, batch: int, prompt: int, output: float) -> Columns:
    """Return steps of decodes alone, and steps that take in whole prompts, of one device."""
    context, each = round(prompt + output / 2), batch / output
    chunks, share = max(1, round(each)), min(1.0, each)
    model = roofline_step_time(deployment)
    seconds = getattr(model, "group_seconds", None)
    shapes = [
        BatchShape(
            batch, batch * context, batch, ((0, prompt),) * n,
            decode_contexts=(context,) * batch, longest_context=context,
        )
        for n in (0, chunks)
    ]  # fmt: skip
    groups = deployment.parallel.groups
    each_s = [float((seconds([s] * groups) if seconds else model.seconds(s))[0]) for s in shapes]
    times = np.array([max(1e-9, 1 - share), share])
    return {
        "start_s": np.zeros(2), "end_s": times * each_s, "steps": times,
        "decode_sequences": np.array([batch, batch]), "prefill_chunks": np.array([0, chunks]),
        "rows": np.array([batch, batch + chunks * prompt]),
        "decode_context_tokens": np.array([batch * context] * 2),
        "prefill_pairs": np.array([0, chunks * prompt * (prompt + 1) // 2]),
    }  # fmt: skip


Shares = dict[str, float]


def fitted(known: list[Point]) -> Shares:
    """Return the shares of design power that are nearest, on measured durations.

    By the least absolute errors of the logarithm.
    """
    used, weights, target = _used(known)

    def loss(shares: np.ndarray) -> float:
        drawn = np.minimum(1.0, used @ np.abs(shares))
        return float(np.abs(np.log((weights * drawn).sum(axis=1) / target)).mean())

    starts = [(0.3, 0.3, 0.5), (0.1, 0.6, 0.3), (0.3, 0.3, 1.0)]
    found = [
        minimize(loss, start, method="Nelder-Mead", options={"maxiter": 4000}) for start in starts
    ]
    best = np.abs(min(found, key=lambda one: one.fun).x)
    return dict(zip(("busy", "memory", "compute"), best.round(3).tolist(), strict=True))


@cache
def _peak_s(place: int) -> np.ndarray:
    """Return the seconds of traffic and of products at the peaks, of both kinds of steps."""
    point = points()[0][place]
    steps, prompt = point.steps, PROMPTS[point.task]
    context = steps["decode_context_tokens"] // steps["decode_sequences"]
    kinds = zip(steps["decode_sequences"], context, steps["prefill_chunks"], strict=True)
    sizes = [(*map(int, kind), prompt, 0) for kind in kinds]
    return np.array([power.peak_s(point.deployment, *of_kind) for of_kind in sizes])


def _used(known: list[Point], measured: bool = True) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return 1 and the roots of both uses, of two kinds of steps; how long these last; the power.

    Durations and power are relative to what was measured.
    """
    used, lasting, power = [], [], []
    for point in known:
        steps, devices = point.lasting(measured), point.deployment.parallel.devices
        each = (steps["steps"] / steps["end_s"])[:, None]
        peaks = np.sqrt(_peak_s(point.place) * each)
        used.append(np.column_stack([np.ones(2), peaks]))
        lasting.append(steps["end_s"] / steps["steps"].sum() / point.measured_step_s)
        watts = point.deployment.hardware.tdp_watts
        assert watts is not None
        power.append(point.measured_joules * point.batch / point.measured_step_s / watts / devices)
    return np.array(used), np.array(lasting), np.array(power)


def left_out(
    by: Callable[[Point], str], known: list[Point]
) -> Iterator[tuple[Shares, list[Point]]]:
    """Yield the fit to all others, and the points of each kind."""
    for kind in sorted({by(point) for point in known}):
        rest = [point for point in known if by(point) != kind]
        yield fitted(rest), [point for point in known if by(point) == kind]


def errors(known: list[Point], shares: Shares, measured: bool) -> np.ndarray:
    """Return predicted over measured, by these shares, less 1: joules per token, then watts."""
    used, lasting, power = _used(known, measured)
    drawn = np.minimum(1.0, used @ [shares[name] for name in ("busy", "memory", "compute")])
    joules = (lasting * drawn).sum(axis=1) / power
    return np.array([joules, joules / lasting.sum(axis=1)]) - 1
