"""A level of a sweep: the load that is planned, and what its load test measured."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from servetwin.loadtest.report.records import client_limits
from servetwin.loadtest.sweep.attainment import Attainment, attainment
from servetwin.sim.experiments.capacity import completions_per_s
from servetwin.sim.records.metrics import SLO, figure, measured
from servetwin.sim.records.run import Run
from servetwin.workloads.errors import TraceError

LevelKind = Literal["synchronous", "throughput", "rate", "users"]

FIGURES = ("ttft_s.p50", "ttft_s.p99", "tpot_s.p50", "tpot_s.p99", "e2e_s.p50", "e2e_s.p99")
COMPLETED, TOKENS = "completed_per_s", "output_tokens_per_s"
SHARE = "slo_attainment"


@dataclass(frozen=True, slots=True)
class LevelPlan:
    """The load of a level: one user, all requests at once, a rate, or a number of users.

    ``requests`` is None where it has as many as the other levels.
    """

    number: int
    kind: LevelKind
    rate_per_s: float | None = None
    users: int | None = None
    requests: int | None = None

    @property
    def folder(self) -> str:
        """The name of its run folder."""
        return f"{self.number:02}-{self.kind}"

    @property
    def load(self) -> str:
        """The load in words."""
        if self.kind == "rate":
            return f"{self.rate_per_s:.4g}/s"
        if self.kind == "throughput":
            return "all at once"
        return "1 user" if self.users == 1 else f"{self.users} users"


@dataclass(frozen=True, slots=True)
class Level:
    """What the load test of a plan measured.

    ``figures`` and the ``predicted`` ones are of ``level_figures``. ``limited_by`` says why the
    level does not count: its client was late. ``answered_at_once`` is the mean number of answers
    that the server streamed at a time.
    """

    plan: LevelPlan
    requests: int
    failed: int
    attempts: int
    limited_by: tuple[str, ...]
    figures: Mapping[str, float | None]
    attainment: Attainment | None = None
    answered_at_once: float | None = None
    predicted: Mapping[str, float | None] | None = None

    @property
    def counts(self) -> bool:
        """Whether the client kept up."""
        return not self.limited_by


def measured_level(
    plan: LevelPlan, run: Run, slo: SLO | None, attempts: int = 1, predicted: Run | None = None
) -> Level:
    """Return the level of a load test; ``predicted`` is the simulation of the same requests."""
    counted = measured(run.requests)
    return Level(
        plan,
        requests=len(counted),
        failed=int((counted["status"] != "finished").sum()),
        attempts=attempts,
        limited_by=_limits(plan, run),
        figures=level_figures(run, slo),
        attainment=attainment(run.requests, slo) if slo else None,
        answered_at_once=_answered_at_once(run),
        predicted=level_figures(predicted, slo) if predicted else None,
    )


def level_figures(run: Run, slo: SLO | None) -> dict[str, float | None]:
    """Return the figures of a level by name; latencies in seconds.

    ``completed_per_s`` leaves out the first and the last tenth of the completions, where the server
    fills and drains.
    """
    summary = run.summary(slo)
    return {
        **{name: figure(summary, name) for name in FIGURES},
        COMPLETED: _completed_per_s(run),
        TOKENS: summary["output_throughput_tokens_per_s"],
        SHARE: summary.get("slo_attainment"),
    }


def _limits(plan: LevelPlan, run: Run) -> tuple[str, ...]:
    """Return why the level does not count; requests that are all due at once are always late."""
    lost = run.extra["delivered"].get("lost_processes", 0)
    died = [f"{lost} processes of the load test died"] if lost else []
    return (*client_limits(run, late_sends=plan.kind != "throughput"), *died)


def _completed_per_s(run: Run) -> float | None:
    try:
        return completions_per_s(run, "level")
    except TraceError:  # Fewer than ten requests finished.
        return None


def _answered_at_once(run: Run) -> float | None:
    finished = run.requests[run.requests["status"] == "finished"]
    if finished.empty:
        return None
    answering_s = float((finished["last_token_s"] - finished["first_token_s"]).sum())
    span_s = float(finished["last_token_s"].max() - finished["first_token_s"].min())
    return answering_s / span_s if span_s > 0 else 1.0
