"""Overheads of a server, and a factor on its kernels, from mean TTFT and TPOT that were measured.

One simulation gives the slopes: between the arrival of a request and its first token lie so many
steps, chunks and rows, and each second that a term adds to one of them it adds to the request. That
is exact as long as the order of steps stays; so fits simulate again where they end.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import least_squares

from servetwin.policies.config import PolicyConfig
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.step_time import FloatArray
from servetwin.sim.step_times.tables import KernelTable, LayerTable, LoadedTable, TableProfile
from servetwin.sim.step_times.tables.server_overheads import MOST_S, ServerOverheads
from servetwin.workloads.trace import Trace

TERMS = {"step_s": 1e-3, "prefill_chunk_s": 8e-3, "prefill_row_s": 4e-6}
"""The terms that are fitted, each with how far one server may lie from the fit of its backend."""
_FACTOR_SD = 0.3
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
    """A measured point, and what is known of its server: a table, and how it schedules."""

    point: MeasuredPoint
    table: KernelTable | LayerTable
    policies: PolicyConfig

    def run(self, overheads: ServerOverheads, factor: float = 1.0) -> Run:
        """Return the simulated run with overheads, and a factor on the kernels."""
        table = LoadedTable(self.table.scaled(factor), overheads)
        profile = TableProfile("fit", table, self.policies, api=overheads.api())
        return run_once(self.point.trace, Scenario(self.policies, profile))

    def measured_s(self) -> FloatArray:
        """Return the measured mean TTFT and TPOT."""
        return np.array([self.point.ttft_s, self.point.tpot_s])


def means_s(run: Run) -> FloatArray:
    """Return mean TTFT and TPOT of a run."""
    return run.requests[["ttft_s", "tpot_s"]].mean().to_numpy(float)


def fit_overheads(servers: Sequence[ServerUnderLoad], start: ServerOverheads) -> ServerOverheads:
    """Return the overheads that are nearest to all points: logarithms under a soft L1 loss."""
    for _ in range(_ROUNDS):
        lines = [_Line.at(server, start, 1.0) for server in servers]
        found = _solved(lines, start, 1.0, prior_weight=0.0)
        start = _with_terms(start, found[1:])
    return start


def fit_point(server: ServerUnderLoad, prior: ServerOverheads) -> LoadedTable:
    """Return the table of a server from one measured point of it.

    The point says two things, a factor on the kernels and three overheads are unknown: of those
    that agree with it (to 5 %) they are the ones nearest to 1 and to ``prior``.
    """
    factor, overheads = 1.0, prior
    for _ in range(_ROUNDS):
        line = _Line.at(server, overheads, factor)
        found = _solved([line], prior, 1.0, prior_weight=1.0)
        factor, overheads = float(found[0]), _with_terms(prior, found[1:])
    return LoadedTable(server.table.scaled(factor), overheads)


@dataclass(frozen=True)
class _Line:
    """Mean TTFT and TPOT of a server as a linear function of the factor and the terms."""

    measured_s: FloatArray
    at_s: FloatArray
    x: FloatArray
    slopes: FloatArray

    @classmethod
    def at(cls, server: ServerUnderLoad, overheads: ServerOverheads, factor: float) -> "_Line":
        run = server.run(overheads, factor)
        slopes = _slopes(run, overheads, factor)
        x = np.array([factor, *(getattr(overheads, name) for name in TERMS)])
        return cls(server.measured_s(), means_s(run), x, slopes)

    def log_errors(self, x: FloatArray) -> FloatArray:
        """Return the logarithms of predicted over measured."""
        predicted_s = self.at_s + (x - self.x) @ self.slopes
        errors: FloatArray = np.log(np.maximum(predicted_s, _LEAST_S) / self.measured_s)
        return errors


def _slopes(run: Run, overheads: ServerOverheads, factor: float) -> FloatArray:
    """Return what one unit of the factor, and a second of each term, add to TTFT and TPOT."""
    steps, requests = run.steps, run.requests
    times = steps["steps"].to_numpy(float)
    chunks = steps["prefill_chunks"].to_numpy(float)
    rows = (steps["rows"] - steps["decode_sequences"]).to_numpy(float) * (chunks > 0)
    lasted_s = (steps["end_s"] - steps["start_s"]).to_numpy(float)
    kernels_s = (lasted_s - overheads.seconds_of_rows(steps)) / factor
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
    lines: Sequence[_Line], prior: ServerOverheads, factor: float, prior_weight: float
) -> FloatArray:
    """Return the factor and the terms; without a weight of the prior the factor stays."""
    middle = np.array([factor, *(getattr(prior, name) for name in TERMS)])
    widths = np.array([_FACTOR_SD, *TERMS.values()])
    free = np.array([prior_weight > 0, True, True, True])

    def residuals(y: FloatArray) -> FloatArray:
        x = middle + widths * np.where(free, y, 0.0)
        errors = np.concatenate([line.log_errors(x) for line in lines])
        return np.concatenate([errors / _MEASURED_SD, prior_weight * y])

    low = (np.array([0.4, *(0.0 for _ in TERMS)]) - middle) / widths - 1e-9
    high = (np.array([3.0, *(MOST_S[name] for name in TERMS)]) - middle) / widths
    loss = "linear" if prior_weight else "soft_l1"
    found = least_squares(residuals, np.zeros(4), bounds=(low, high), loss=loss, f_scale=2.0)
    solved: FloatArray = np.maximum(middle + widths * np.where(free, found.x, 0.0), 0.0)
    return solved


def _with_terms(overheads: ServerOverheads, values: FloatArray) -> ServerOverheads:
    return replace(overheads, **dict(zip(TERMS, values.tolist(), strict=True)))
