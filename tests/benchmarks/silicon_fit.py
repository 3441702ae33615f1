"""Overheads from measured TTFT and TPOT: a linear model of what each term adds, and its fits.

A closed loop keeps its order of steps whatever they last, so mean TTFT and TPOT are nearly linear
in every term: one simulation per term gives the slopes. Fits use them; what is printed is
simulated.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from servetwin.policies.config import PolicyConfig
from servetwin.policies.presets import find_preset
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.step_times.step_time import FloatArray
from servetwin.sim.step_times.tables import KernelTable, LoadedTable, TableProfile
from servetwin.sim.step_times.tables.server_overheads import MOST_S, ServerOverheads, overheads_of
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.benchmarks.silicon_rows import Row

TERMS = {"step_s": 1e-3, "prefill_chunk_s": 2e-3, "prefill_row_s": 2e-6}
"""The fitted terms, each with the seconds by which its slope is taken."""

PRIOR_SD = {"factor": 0.3, "step_s": 2e-3, "prefill_chunk_s": 8e-3, "prefill_row_s": 4e-6}
"""How far a deployment may lie from the fit of its backend; a measurement is known to 5 %."""
MEASURED_SD = 0.05

PRESETS = {"vllm": "vllm-v1", "sglang": "sglang", "trtllm": "tensorrt-llm"}
REQUESTS_PER_USER = 10
_ROWS, _SEQS, _UNLIMITED, _LONGEST = 8192, 1024, 1 << 40, 1 << 17
_FACTOR_STEP = 0.1


@dataclass(frozen=True)
class Guess:
    """A factor on all kernels, and overheads beside them."""

    factor: float = 1.0
    overheads: ServerOverheads = ServerOverheads()  # noqa: RUF009 - it is frozen

    def vector(self) -> FloatArray:
        """Return the factor beyond 1, and the terms, as a vector in their steps."""
        terms = [getattr(self.overheads, name) / step for name, step in TERMS.items()]
        return np.array([(self.factor - 1) / _FACTOR_STEP, *terms])

    @classmethod
    def of(cls, vector: FloatArray) -> "Guess":
        """Return the guess of a vector."""
        terms = {
            name: float(x) * step for x, (name, step) in zip(vector[1:], TERMS.items(), strict=True)
        }
        return cls(1 + _FACTOR_STEP * float(vector[0]), overheads_of(terms))


LOWEST = np.array([-0.6 / _FACTOR_STEP, *(0.0 for _ in TERMS)])
HIGHEST = np.array([2.0 / _FACTOR_STEP, *(MOST_S[name] / step for name, step in TERMS.items())])


class Case:
    """A row, and its mean TTFT and TPOT as simulated; step times are remembered.

    Lengths are uniform in ``shortest`` to 1.0 of the nominal.
    """

    def __init__(self, row: Row, table: KernelTable, shortest: float = 0.8) -> None:
        self.row, self.table, self._shortest = row, table, shortest
        self.measured_ms = np.array([row.ttft_ms, row.tpot_ms])
        preset = find_preset(PRESETS[row.backend]).policies
        whole_prompts = 0 if preset["batching"] == "chunked" else row.prompt_tokens
        sizes = {"max_seqs": _SEQS, "kv_tokens": _UNLIMITED, "max_model_len": _LONGEST}
        budget = {"token_budget": max(_ROWS, whole_prompts)}
        no_reuse = {"prefix_cache": False, "queue_order": "fcfs"}
        self._policies = PolicyConfig(**{**preset, **sizes, **budget, **no_reuse})
        self.raw_ms = self.simulated_ms(Guess())
        steps = np.eye(1 + len(TERMS))
        self._slopes = [self.simulated_ms(Guess.of(step)) - self.raw_ms for step in steps]

    def simulated_ms(self, guess: Guess) -> FloatArray:
        """Return mean TTFT and TPOT of the row's load under a guess."""
        table = self.table if guess.factor == 1 else self.table.scaled(guess.factor)
        profile = TableProfile(
            "silicon", LoadedTable(table, guess.overheads), self._policies, None,
            guess.overheads.api(),
        )  # fmt: skip
        summary = run_once(self._load(), Scenario(self._policies, profile)).summary()
        return np.array([1e3 * summary[name]["mean"] for name in ("ttft_s", "tpot_s")])

    def log_errors(self, vector: FloatArray) -> FloatArray:
        """Return the logarithms of predicted over measured, by the slopes."""
        predicted = self.raw_ms + vector @ np.array(self._slopes)
        errors: FloatArray = np.log(np.maximum(predicted, 1e-3) / self.measured_ms)
        return errors

    def _load(self) -> Trace:
        """Return the load of InferenceMAX: each user sends ten requests, one after the other."""
        rng = np.random.default_rng(0)
        requests = []
        for place in range(REQUESTS_PER_USER):
            for user in range(self.row.users):
                prompt, output = (
                    max(2, int(nominal * rng.uniform(self._shortest, 1.0)))
                    for nominal in (self.row.prompt_tokens, self.row.output_tokens)
                )
                before = f"{user}.{place - 1}" if place else None
                requests.append(
                    Request(
                        f"{user}.{place}", 1e-3 * place, prompt, output,
                        parent_id=before, delay_s=0.0 if place else None,
                    )
                )  # fmt: skip
        return Trace(tuple(requests), "users")


def fitted(cases: Sequence[Case]) -> Guess:
    """Return the overheads that are nearest to all cases: logarithms under a soft L1 loss."""

    def residuals(terms: FloatArray) -> FloatArray:
        return np.concatenate([case.log_errors(np.array([0.0, *terms])) for case in cases])

    start = np.full(len(TERMS), 0.1)
    found = least_squares(
        residuals, start, bounds=(LOWEST[1:], HIGHEST[1:]), loss="soft_l1", f_scale=0.1
    )
    return Guess.of(np.array([0.0, *found.x]))


def fitted_to_one(case: Case, prior: Guess) -> Guess:
    """Return the factor and overheads of a deployment from one of its rows, near a prior."""
    middle = prior.vector()
    widths = np.array([PRIOR_SD["factor"] / _FACTOR_STEP] + [PRIOR_SD[n] / TERMS[n] for n in TERMS])

    def residuals(vector: FloatArray) -> FloatArray:
        return np.concatenate([case.log_errors(vector) / MEASURED_SD, (vector - middle) / widths])

    return Guess.of(least_squares(residuals, middle, bounds=(LOWEST, HIGHEST)).x)


def middle_case(cases: Sequence[Case]) -> Case:
    """Return the row that counts as measured: the middle one by users, then lengths."""
    rows = sorted(cases, key=lambda c: (c.row.users, c.row.prompt_tokens, c.row.output_tokens))
    return rows[len(rows) // 2]
