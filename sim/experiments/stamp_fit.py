"""Step times from nothing but the stamps of requests: a fit with the simulator in the loop.

A server's log has no steps, but every latency in it is a sum of steps. The fitted coefficients of
the step-time model are the ones with which the simulator, given the same requests and limits, comes
nearest to the measured latencies: least squares of the logarithms of simulated / measured TTFT,
TPOT and E2E, with a soft L1 loss against outliers.

A request that arrives waits for the step under way, and the phase of that step is unknown: a TTFT
of few steps is as uncertain, and counts the less.

What the log does not show stays near a prior. Without one, that is a rough guess from the log
itself, from which a coefficient may go far (``_LOOSE``); a prior from a data sheet or from tables
holds it closer (``_FIRM``), but for the overheads, which no table has.

Consecutive requests share a queue, so a block of them counts as one residual. A small change of a
coefficient regroups batches at random, and a difference of two simulations would take that chance
for information: what the log shows of each coefficient is therefore a regression over many
simulations around the fit, less what chance alone would show.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.sim.core.simulate import simulate
from servetwin.sim.records.metrics import LATENCIES
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.step_time import ApiLatency, LinearStepTime
from servetwin.workloads.trace import Trace

# The features that are fitted: the weights are read up to some 200 rows, then rows cost.
FITTED = (
    "constant", "decode_sequences", "prefill_chunks", "rows_from_0", "rows_from_128",
    "rows_from_256", "decode_context_tokens", "prefill_pairs",
)  # fmt: skip
# The latency of the API, fitted too where the stamps are those of clients.
REQUEST_S = "request_s"

DRAWS = 64
# Residuals above this, relative, weigh less than by their square.
_SCALE = 0.02
# Standard deviation of the phase of a step, in steps.
_PHASE = 1 / math.sqrt(12)
# Standard deviations of the logarithm of a coefficient around the guess, or around the prior.
_LOOSE, _FIRM = 1.5, 0.35
# Features whose prior may lack what the host of the server adds.
_OVERHEADS = ("constant", "decode_sequences", "prefill_chunks")
# Standard deviation of the simulations around the fit, and their number.
_AROUND, _PER_COEFFICIENT = 0.15, 4
# A prior below this share of the guess says nothing: its model has no such part.
_NEGLIGIBLE = 1e-3
_MOST_CHANGE = math.log(100.0)
# A coefficient whose logarithm is known better than this is identified.
_IDENTIFIED = 0.3
_DIFFERENCE = 0.1
_MOST_ITERATIONS = 10
# Fitted first, each with one factor: the weights, the products, the keys and values.
_GROUPS = (
    ("constant", "decode_sequences", "prefill_chunks", REQUEST_S),
    ("rows_from_0", "rows_from_128", "rows_from_256", "prefill_pairs"),
    ("decode_context_tokens",),
)

# Keys and values of a token over the weights, in bytes: of a model of 8B with 8 KV heads.
_CONTEXT_PER_STEP = 8e-6

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StampFit:
    """What the stamps say of the step times.

    ``coefficients`` by name, in seconds; ``deviations`` are standard deviations of their
    logarithms, ``draws`` are from their joint distribution, in their order. ``singular_values`` are
    those of the residuals' derivatives over their scale, prior left out: below 1 for a combination
    of coefficients that the log does not show.
    ``run`` is the simulation with the coefficients.
    """

    coefficients: Mapping[str, float]
    deviations: Mapping[str, float]
    draws: Sequence[Sequence[float]]
    singular_values: Sequence[float]
    run: Run
    simulations: int

    @property
    def identified(self) -> list[str]:
        """The coefficients that the log identifies."""
        return [name for name, value in self.deviations.items() if value < _IDENTIFIED]


def fit_stamps(
    trace: Trace,
    config: PolicyConfig,
    measured: pd.DataFrame,
    *,
    prior: Mapping[str, float] | None = None,
    with_api: bool = False,
    seed: int = 0,
    on_simulation: Callable[[int], None] = lambda done: None,
) -> StampFit:
    """Fit the step times of a server under ``config`` to the latencies of some of its requests.

    ``measured`` has ``request_id`` and ``LATENCIES`` of the requests that count, in seconds; the
    load is the whole ``trace``. ``prior`` has coefficients by name. With ``with_api`` the latency
    before the scheduler is fitted too. ``on_simulation`` receives the number of simulations done.
    """
    guess, names = _guess(trace, config, measured), [*FITTED, *([REQUEST_S] if with_api else [])]
    firm_of = {name: s for name, s in (prior or {}).items() if s > _NEGLIGIBLE * guess[name]}
    start = np.log([{**guess, **firm_of}[name] for name in names])
    is_firm = [name in firm_of and name not in _OVERHEADS for name in names]
    spread = np.where(is_firm, _FIRM, _LOOSE)
    residuals = _Residuals(trace, config, measured, names, on_simulation)
    weight = _SCALE * math.sqrt(residuals.block)

    def with_prior(x: Floats) -> Floats:
        return np.concatenate([residuals(x), (x - start) / spread * weight])

    together = np.array([[name in group for group in _GROUPS] for name in names], dtype=float)
    roughly = _least_squares(lambda y: with_prior(start + together @ y), len(_GROUPS))
    nearer = start + together @ (roughly.x - 1)
    fit = _least_squares(lambda y: with_prior(nearer + y), len(names))
    x, rng = nearer + fit.x - 1, np.random.default_rng(seed)
    shown = _information(residuals, x, rng)
    covariance = np.asarray(np.linalg.inv(shown + np.diag(spread**-2.0)), dtype=float)
    run = residuals.simulated(x)
    return StampFit(
        dict(zip(names, np.exp(x).tolist(), strict=True)),
        dict(zip(names, np.sqrt(np.diag(covariance)).tolist(), strict=True)),
        _draws(np.exp(x), covariance, rng).tolist(),
        np.sqrt(np.linalg.eigvalsh(shown).clip(0))[::-1].tolist(),
        run,
        residuals.simulations,
    )


def _least_squares(residuals: Callable[[Floats], Floats], parameters: int) -> Any:
    """Return the fit of changes of logarithms, from no change on."""
    from scipy.optimize import least_squares

    return least_squares(
        lambda changes: residuals(changes - 1),  # around 1, so that steps are of _DIFFERENCE
        np.ones(parameters),
        bounds=(1 - _MOST_CHANGE, 1 + _MOST_CHANGE),
        loss="soft_l1",
        f_scale=_SCALE,
        diff_step=_DIFFERENCE,
        max_nfev=_MOST_ITERATIONS,
        ftol=1e-3,
        xtol=1e-3,
    )


class _Residuals:
    """Logarithms of simulated / measured latencies, weighted by how well they are known."""

    def __init__(
        self,
        trace: Trace,
        config: PolicyConfig,
        measured: pd.DataFrame,
        names: Sequence[str],
        on_simulation: Callable[[int], None],
    ) -> None:
        self._trace, self._config, self._names = trace, config, names
        self._ids = measured["request_id"]
        self._measured = measured[[*LATENCIES]].to_numpy(float)
        self._weights = _weights(measured)
        self._on_simulation = on_simulation
        self.simulations = 0
        # Consecutive requests that count as one residual.
        self.block = max(1, round(math.sqrt(len(measured))))

    def __call__(self, x: Floats) -> Floats:
        """Return the residuals of a simulation with these coefficients."""
        return self.of(self.simulated(x))

    def of(self, run: Run) -> Floats:
        """Return the residuals, request by request; 0 where nothing was measured."""
        frame = run.requests.set_index("request_id")
        simulated = frame.loc[self._ids, [*LATENCIES]].to_numpy(float)
        with np.errstate(divide="ignore", invalid="ignore"):
            residuals = np.log(simulated / self._measured) * self._weights
        residuals[~np.isfinite(residuals)] = 0.0
        return np.asarray(residuals.ravel())

    def means(self, residuals: Floats) -> Floats:
        """Return the means of residuals over blocks, latency by latency."""
        each = residuals.reshape(self._measured.shape)
        starts = np.arange(0, len(each), self.block)
        sizes = np.diff([*starts, len(each)])[:, None]
        return np.asarray((np.add.reduceat(each, starts, axis=0) / sizes).ravel())

    def simulated(self, x: Floats) -> Run:
        """Return the run with these coefficients."""
        by_name = dict(zip(self._names, np.exp(x).tolist(), strict=True))
        api = ApiLatency(by_name[REQUEST_S]) if REQUEST_S in by_name else None
        model = LinearStepTime.of({name: by_name[name] for name in FITTED})
        run = simulate(self._trace, build_scheduler(self._config), model, api=api)
        self.simulations += 1
        self._on_simulation(self.simulations)
        return run


def _weights(measured: pd.DataFrame) -> Floats:
    """Return 1, for TTFT less by the phase of the step that a request waits for."""
    weights = np.ones((len(measured), len(LATENCIES)))
    step_s = measured["tpot_s"].fillna(measured["tpot_s"].median()).fillna(0.0)
    unsure = _PHASE * step_s / measured["ttft_s"] / _SCALE
    weights[:, LATENCIES.index("ttft_s")] = 1 / np.sqrt(1 + unsure.fillna(0.0).to_numpy() ** 2)
    return weights


def _information(residuals: "_Residuals", x: Floats, rng: np.random.Generator) -> Floats:
    """Return what the log shows of the logarithms of the coefficients: an inverse covariance.

    The slopes of the means of blocks are regressed on random changes of all coefficients. Chance
    alone gives slopes too, whose expected products are subtracted.
    """
    count = _PER_COEFFICIENT * len(x)
    changes = rng.normal(0.0, _AROUND, (count, len(x)))
    means = np.array([residuals.means(residuals(x + change)) for change in changes])
    design = np.column_stack([np.ones(count), changes])
    slopes, *_ = np.linalg.lstsq(design, means, rcond=None)
    chance = ((means - design @ slopes) ** 2).sum() / (count - design.shape[1])
    by_chance = chance * np.linalg.inv(design.T @ design)[1:, 1:]
    values, vectors = np.linalg.eigh(slopes[1:] @ slopes[1:].T - by_chance)
    return np.asarray(vectors * values.clip(0) @ vectors.T / _SCALE**2)


def _draws(best: Floats, covariance: Floats, rng: np.random.Generator) -> Floats:
    """Return draws of the coefficients, none negative.

    Relative changes are normal: a step is a sum of coefficients, so what the log shows of a sum
    stays as it is, however unsure its parts are.
    """
    accepted = np.empty((0, len(best)))
    while len(accepted) < DRAWS:
        changes = rng.multivariate_normal(np.zeros(len(best)), covariance, 16 * DRAWS)
        accepted = np.concatenate([accepted, changes[(changes > -1).all(axis=1)]])
    return np.asarray(best * (1 + accepted[:DRAWS]))


def _guess(trace: Trace, config: PolicyConfig, measured: pd.DataFrame) -> dict[str, float]:
    """Return coefficients of the right order of magnitude, from the log alone."""
    step_s = float(measured["tpot_s"].quantile(0.05))
    if not step_s > 0:
        step_s = float(measured["e2e_s"].quantile(0.05)) or 0.01
    prompts = {request.request_id: request.prompt_tokens for request in trace}
    lengths = measured["request_id"].map(prompts).to_numpy(float)
    longer = lengths >= np.median(lengths)
    per_row_s = np.quantile(measured["ttft_s"].to_numpy(float)[longer] / lengths[longer], 0.05)
    row_s = float(max(step_s / 2000, per_row_s / 2))
    return {
        "constant": 0.7 * step_s,
        "decode_sequences": step_s / 1000,
        "prefill_chunks": step_s / 10,
        "rows_from_0": 0.35 * row_s,
        "rows_from_128": 0.5 * row_s,
        "rows_from_256": row_s,
        "decode_context_tokens": _CONTEXT_PER_STEP * step_s,
        "prefill_pairs": row_s / 20_000,
        REQUEST_S: max(step_s / 20, (float(measured["ttft_s"].quantile(0.05)) - step_s) / 2),
    }
