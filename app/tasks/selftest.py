"""Compare the simulator with closed forms of queueing theory."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
import typer

from servetwin.app.command import print_result
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.sim.core.simulate import simulate
from servetwin.sim.experiments.paired_comparison import half_width
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.step_time import LinearStepTime
from servetwin.workloads.request import Request

RATE_PER_S, REQUESTS, REPLICATIONS, WARM_UP = 0.5, 2_000, 16, 200
ROWS_PER_S = 1_000_000
CONFIDENCE, SEED = 0.999, 20_231


@dataclass(frozen=True, slots=True)
class ClosedFormCheck:
    """An exact figure beside the simulated one and the half width of its 99.9 % interval."""

    name: str
    exact: float
    measured: float
    half_width: float

    @property
    def holds(self) -> bool:
        """Whether the exact figure lies in the interval."""
        return abs(self.measured - self.exact) <= self.half_width


def run(as_json: bool) -> None:
    """Print every check; exit with 1 where one fails."""
    checks = list(closed_form_checks())
    holds = all(check.holds for check in checks)
    rows = [{**asdict(check), "holds": check.holds} for check in checks]
    lines = [f"{'':<28}{'exact':>12}{'measured':>12}{'+- 99.9 %':>12}"]
    for check in checks:
        figures = f"{check.exact:>12.6g}{check.measured:>12.6g}{check.half_width:>12.2g}"
        lines.append(f"{check.name:<28}{figures}  {'holds' if check.holds else 'FAILED'}")
    print_result(as_json, {"holds": holds, "confidence": CONFIDENCE, "checks": rows}, lines)
    if not holds:
        failed = sum(not check.holds for check in checks)
        typer.echo(f"servetwin: {failed} of {len(checks)} checks failed", err=True)
        raise typer.Exit(1)


def closed_form_checks() -> Iterator[ClosedFormCheck]:
    """Yield the mean waits of two queues that are half loaded, and Little's law on their runs."""
    gaps: list[float] = []
    for name, service_cv in (("M/D/1 mean wait, s", 0.0), ("M/M/1 mean wait, s", 1.0)):
        streams = np.random.SeedSequence(SEED).spawn(REPLICATIONS)
        runs = [_one_server(np.random.default_rng(stream), service_cv) for stream in streams]
        waits_s = np.array([run.requests["queue_s"][WARM_UP:].mean() for run in runs])
        exact_s = RATE_PER_S * (1 + service_cv**2) / (2 * (1 - RATE_PER_S))
        half_s = half_width(waits_s, CONFIDENCE)
        yield ClosedFormCheck(name, exact_s, float(waits_s.mean()), half_s)
        gaps += map(_littles_law_gap, runs)
    yield ClosedFormCheck("Little's law, relative gap", 0.0, max(gaps), 1e-9)


def _littles_law_gap(run: Run) -> float:
    """Return the relative gap of the integral of the number present and the sum of sojourns."""
    enter_s, leave_s = (run.requests[name].to_numpy() for name in ("scheduled_s", "last_token_s"))
    moments_s = np.concatenate([enter_s, leave_s])
    order = np.argsort(moments_s)
    present = np.repeat([1.0, -1.0], len(enter_s))[order].cumsum()[:-1]
    return abs(float(present @ np.diff(moments_s[order])) / float((leave_s - enter_s).sum()) - 1)


def _one_server(rng: np.random.Generator, service_cv: float) -> Run:
    """Simulate one slot that Poisson arrivals keep half busy; a service lasts 1 s in the mean."""
    arrivals_s = np.cumsum(rng.exponential(1 / RATE_PER_S, REQUESTS))
    services_s = rng.exponential(1.0, REQUESTS) if service_cv else np.ones(REQUESTS)
    prompts = np.ceil(services_s * ROWS_PER_S).astype(np.int64)
    config = PolicyConfig(
        max_seqs=1, kv_tokens=1 << 40, max_model_len=1 << 40, token_budget=1 << 40
    )
    requests = [
        Request(str(number), arrival_s, prompt, 1)
        for number, (arrival_s, prompt) in enumerate(
            zip(arrivals_s.tolist(), prompts.tolist(), strict=True)
        )
    ]
    step_time = LinearStepTime.of({"rows_from_0": 1 / ROWS_PER_S})
    return simulate(requests, build_scheduler(config), step_time)
