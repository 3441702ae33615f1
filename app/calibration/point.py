"""Overheads of a server, and a factor on its kernels, from mean TTFT and TPOT that were measured.

One simulation gives the slopes: between the arrival of a request and its first token lie so many
steps, chunks and rows, and each second that a term adds to one of them it adds to the request. That
is exact as long as the order of steps stays; so fits simulate again where they end.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from servetwin.policies.config import PolicyConfig
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.experiments.scenario import ClusterConfig, Scenario
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.step_time import FloatArray
from servetwin.sim.step_times.tables import KernelTable, LayerTable, LoadedTable, TableProfile
from servetwin.sim.step_times.tables.server_overheads import RANGES, ServerOverheads
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

TERMS = {"factor": 0.3, "step_s": 1e-3, "prefill_chunk_s": 8e-3, "prefill_row_s": 4e-6}
"""What is fitted, each with how far one server may lie from the fit of its backend."""
REQUESTS_PER_USER = 10
_MEASURED_SD = 0.05
_ROUNDS = 2
_LEAST_S = 1e-6


@dataclass(frozen=True)
class MeasuredPoint:
    """A load, and the mean TTFT and TPOT that a server had under it, in seconds."""

    trace: Trace
    ttft_s: float
    tpot_s: float


@dataclass(frozen=True)
class ServerUnderLoad:
    """A measured point, and what is known of its server: a table, how it schedules, its ranks."""

    point: MeasuredPoint
    table: KernelTable | LayerTable
    policies: PolicyConfig
    cluster: ClusterConfig = field(default_factory=ClusterConfig)

    def run(self, overheads: ServerOverheads) -> Run:
        """Return the simulated run."""
        table = LoadedTable(self.table, overheads)
        profile = TableProfile("fit", table, self.policies, api=overheads.api())
        return run_once(self.point.trace, Scenario(self.policies, profile, self.cluster))

    def measured_s(self) -> FloatArray:
        """Return the measured mean TTFT and TPOT."""
        return np.array([self.point.ttft_s, self.point.tpot_s])


def users_trace(users: int, prompt_tokens: int, output_tokens: int, shortest: float = 1.0) -> Trace:
    """Return the load of users without pauses: each sends ten requests, one after the other.

    Lengths are uniform in ``shortest`` to all of the given ones, the same for every server.
    """
    rng = np.random.default_rng(0)
    requests = []
    for place in range(REQUESTS_PER_USER):
        for user in range(users):
            prompt, output = (
                max(2, int(tokens * rng.uniform(shortest, 1.0)))
                for tokens in (prompt_tokens, output_tokens)
            )
            before = f"{user}.{place - 1}" if place else None
            requests.append(
                Request(
                    f"{user}.{place}", 1e-3 * place, prompt, output,
                    parent_id=before, delay_s=0.0 if place else None,
                )
            )  # fmt: skip
    return Trace(tuple(requests), "users")


def means_s(run: Run) -> FloatArray:
    """Return mean TTFT and TPOT of a run."""
    return run.requests[["ttft_s", "tpot_s"]].mean().to_numpy(float)


def fit_overheads(servers: Sequence[ServerUnderLoad], start: ServerOverheads) -> ServerOverheads:
    """Return the overheads that are nearest to all points: logarithms under a soft L1 loss.

    The factor stays that of ``start``: what is fitted on many servers is the same for each.
    """
    for _ in range(_ROUNDS):
        start = _solved([_Line.at(server, start) for server in servers], start)
    return start


def fit_point(server: ServerUnderLoad, prior: ServerOverheads) -> ServerOverheads:
    """Return the overheads of a server, with a factor on its kernels, from one measured point.

    The point says two things, and four are unknown: of those that agree with it (to 5 %) they are
    the nearest to ``prior``.
    """
    found = prior
    for _ in range(_ROUNDS):
        found = _solved([_Line.at(server, found)], prior, is_prior=True)
    return replace(found, source="fitted to one measured point")


@dataclass(frozen=True)
class _Line:
    """Mean TTFT and TPOT of a server as a linear function of ``TERMS``."""

    measured_s: FloatArray
    at_s: FloatArray
    x: FloatArray
    slopes: FloatArray

    @classmethod
    def at(cls, server: ServerUnderLoad, overheads: ServerOverheads) -> "_Line":
        run = server.run(overheads)
        return cls(server.measured_s(), means_s(run), _values(overheads), _slopes(run, overheads))

    def log_errors(self, x: FloatArray) -> FloatArray:
        """Return the logarithms of predicted over measured."""
        predicted_s = self.at_s + (x - self.x) @ self.slopes
        errors: FloatArray = np.log(np.maximum(predicted_s, _LEAST_S) / self.measured_s)
        return errors


def _slopes(run: Run, overheads: ServerOverheads) -> FloatArray:
    """Return what one of each of ``TERMS`` adds to TTFT and TPOT, the mean over all requests."""
    slopes = np.zeros((len(TERMS), 2))
    for replica, requests in run.requests.groupby("replica"):
        steps = run.steps[run.steps["replica"] == replica]
        slopes += len(requests) * _replica_slopes(steps, requests, overheads)
    return slopes / len(run.requests)


def _replica_slopes(
    steps: pd.DataFrame, requests: pd.DataFrame, overheads: ServerOverheads
) -> FloatArray:
    times = steps["steps"].to_numpy(float)
    chunks = steps["prefill_chunks"].to_numpy(float)
    rows = (steps["rows"] - steps["decode_sequences"]).to_numpy(float) * (chunks > 0)
    lasted_s = (steps["end_s"] - steps["start_s"]).to_numpy(float)
    kernels_s = (lasted_s - overheads.seconds_of_rows(steps)) / overheads.factor
    counted = np.minimum(chunks, overheads.most_chunks)
    ends_s = np.concatenate([steps["start_s"].to_numpy(float)[:1], steps["end_s"].to_numpy(float)])
    sent_s, first_s, last_s = (
        requests[name].to_numpy(float) for name in ("sent_s", "first_token_s", "last_token_s")
    )
    gaps = np.maximum(1, requests["output_tokens"].to_numpy(float) - 1)
    slopes = []
    for each in (kernels_s, times, times * counted, times * rows):
        total = np.concatenate([[0.0], np.cumsum(each)])
        sent, first, last = (np.interp(at, ends_s, total) for at in (sent_s, first_s, last_s))
        slopes.append([np.mean(first - sent), np.mean((last - first) / gaps)])
    return np.array(slopes)


def _solved(
    lines: Sequence[_Line], middle: ServerOverheads, is_prior: bool = False
) -> ServerOverheads:
    """Return the terms that agree best; without a prior the factor stays, odd lines pull less."""
    widths = np.array(list(TERMS.values()))
    free = np.array([is_prior or name != "factor" for name in TERMS])

    def residuals(y: FloatArray) -> FloatArray:
        x = _values(middle) + widths * np.where(free, y, 0.0)
        errors = np.concatenate([line.log_errors(x) for line in lines])
        return np.concatenate([errors / _MEASURED_SD, float(is_prior) * y])

    least, most = (np.array([RANGES[name][end] for name in TERMS]) for end in (0, 1))
    bounds = [(edge - _values(middle)) / widths for edge in (least, most)]
    start = np.clip(np.zeros(len(TERMS)), bounds[0] + 1e-9, bounds[1] - 1e-9)
    loss = "linear" if is_prior else "soft_l1"
    found = least_squares(residuals, start, bounds=bounds, loss=loss, f_scale=2.0)
    solved = np.clip(_values(middle) + widths * np.where(free, found.x, 0.0), least, most)
    return replace(middle, **dict(zip(TERMS, solved.tolist(), strict=True)))


def _values(overheads: ServerOverheads) -> FloatArray:
    return np.array([getattr(overheads, name) for name in TERMS])
