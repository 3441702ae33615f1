"""Overheads of a server, and a factor on its kernels, from measured means of TTFT and TPOT."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from servetwin.policies.config import PolicyConfig
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.experiments.scenario import ClusterConfig, Scenario
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.step_time import FloatArray
from servetwin.sim.step_times.tables import KernelTable, LayerTable, LoadedTable, TableProfile
from servetwin.sim.step_times.tables.server_overheads import RANGES, ServerOverheads
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

# What is fitted, each with how far one server may lie from the fit of its backend.
TERMS = {"factor": 0.3, "step_s": 1e-3, "prefill_chunk_s": 8e-3, "prefill_row_s": 4e-6}
REQUESTS_PER_USER = 10
_MEASURED_SD = 0.05
_LEAST_S = 1e-6
# The search varies each term by 1 % of its width: less is within a tick of the simulator.
_MIDDLE, _STEP = 10.0, 1e-3


@dataclass(frozen=True)
class ServerUnderLoad:
    """A load, the mean TTFT and TPOT that a server had under it (s), and what is known of it.

    That is a table, how it schedules, and its ranks.
    """

    trace: Trace
    ttft_s: float
    tpot_s: float
    table: KernelTable | LayerTable
    policies: PolicyConfig
    cluster: ClusterConfig = field(default_factory=ClusterConfig)

    def run(self, overheads: ServerOverheads) -> Run:
        """Return the simulated run."""
        table = LoadedTable(self.table, overheads)
        profile = TableProfile("fit", table, self.policies, api=overheads.api())
        return run_once(self.trace, Scenario(self.policies, profile, self.cluster))

    def measured_s(self) -> FloatArray:
        """Return the measured mean TTFT and TPOT."""
        return np.array([self.ttft_s, self.tpot_s])


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
            before = (f"{user}.{place - 1}",) if place else ()
            requests.append(
                Request(
                    f"{user}.{place}", 1e-3 * place, prompt, output,
                    parent_ids=before, delay_s=0.0 if place else None,
                )
            )  # fmt: skip
    return Trace(tuple(requests), "users")


def means_s(run: Run) -> FloatArray:
    """Return mean TTFT and TPOT of a run."""
    return run.requests[["ttft_s", "tpot_s"]].mean().to_numpy(float)


def fit_point(server: ServerUnderLoad, prior: ServerOverheads) -> ServerOverheads:
    """Return the overheads of a server, with a factor on its kernels, from one measured point.

    The point says two things, and four are unknown: of those that agree with it (to 5 %) they are
    the nearest to ``prior``.
    """
    fitted = fit_terms([server], prior, TERMS, prior_weight=1.0)
    return replace(fitted, source="fitted to one measured point")


def fit_terms(
    servers: Sequence[ServerUnderLoad],
    middle: ServerOverheads,
    terms: Mapping[str, float],
    prior_weight: float = 0.0,
) -> ServerOverheads:
    """Return ``middle`` with the terms that agree best with the measured points.

    ``terms`` have the widths of their priors. Of many servers, odd ones pull less (soft L1).
    """
    from scipy.optimize import least_squares

    widths, values = np.array([*terms.values()]), np.array([getattr(middle, n) for n in terms])
    least, most = (np.array([RANGES[name][end] for name in terms]) for end in (0, 1))

    def overheads(x: FloatArray) -> ServerOverheads:
        found = np.clip(values + widths * (x - _MIDDLE), least, most)
        return replace(middle, **dict(zip(terms, found.tolist(), strict=True)))

    def residuals(x: FloatArray) -> FloatArray:
        runs = [(means_s(server.run(overheads(x))), server.measured_s()) for server in servers]
        errors = [np.log(np.maximum(ours, _LEAST_S) / theirs) for ours, theirs in runs]
        return np.concatenate(
            [*(one / _MEASURED_SD for one in errors), prior_weight * (x - _MIDDLE)]
        )

    bounds = [_MIDDLE + (edge - values) / widths for edge in (least, most)]
    start = np.clip(np.full(len(terms), _MIDDLE), bounds[0] + 1e-9, bounds[1] - 1e-9)
    loss = "soft_l1" if len(servers) > 1 else "linear"
    solved = least_squares(residuals, start, bounds=bounds, loss=loss, f_scale=2.0, diff_step=_STEP)
    return overheads(solved.x)
