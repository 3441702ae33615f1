"""Options of a load test at many levels: a sweep of rates or users, or the search for the knee."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, ClassVar

from typer import Option

from servetwin.workloads.errors import LoadTestError

if TYPE_CHECKING:
    from servetwin.loadtest.sweep.run_sweep import SweepBudget
    from servetwin.loadtest.sweep.sweep import SweepSettings
    from servetwin.sim.records.metrics import SLO

GENERATED_REQUESTS = 400
"""Of a level whose load is generated: enough to prove 99 % if none misses."""
DEFAULT_ATTAINMENT = 0.99
DEFAULT_BUDGET = "24"


class SweepChoice(StrEnum):
    """What the levels of a sweep differ in."""

    rates = "rates"
    users = "users"
    slo = "slo"


@dataclass(frozen=True, slots=True)
class LevelSweepOptions:
    """The levels of a sweep; without ``of`` there is one load test."""

    PANEL: ClassVar = "Sweep"

    of: Annotated[SweepChoice | None, Option("--sweep")] = None
    """Load test after load test: one user, all at once, then rates or users between, or a search
    for the highest rate that holds --slo."""
    levels: Annotated[int | None, Option("--sweep-levels", min=1, max=1000)] = None
    """Rates or users between the two ends; default 6."""
    requests: Annotated[int | None, Option("--sweep-requests", min=20)] = None
    """Requests of a level; default all of --trace, or 400."""
    budget: Annotated[str | None, Option("--sweep-budget", metavar="N|TIME")] = None
    """End after so many load tests (24), or such a time: 900s, 15min."""
    precision: Annotated[float | None, Option("--sweep-precision", min=0.001, max=0.5)] = None
    """Relative width at which the search ends; default 0.02."""
    attainment: Annotated[float | None, Option("--attainment")] = None
    """Of --sweep slo: share of the requests that must meet it; default 0.99."""

    def settings(self, requests: int, slo: "SLO | None") -> "SweepSettings":
        """Return what is swept, by levels of so many requests."""
        from servetwin.loadtest.sweep.sweep import SweepSettings

        assert self.of
        given = {"levels": self.levels, "precision": self.precision, "wanted": self.attainment}
        chosen = {name: value for name, value in given.items() if value is not None}
        return SweepSettings(self.of.value, requests, slo=slo, **chosen)  # type: ignore[arg-type]

    def stopping_rule(self) -> "SweepBudget":
        """Return the budget; raises ``LoadTestError`` where it cannot be read."""
        from servetwin.loadtest.sweep.run_sweep import parse_budget

        return parse_budget(DEFAULT_BUDGET if self.budget is None else self.budget)

    def contradictions(self) -> Iterator[str]:
        """Yield a message for options that need another one, or exclude each other.

        Raises ``LoadTestError`` where the budget cannot be read.
        """
        if self.of is None:
            for field in fields(self):
                if getattr(self, field.name) is not None:
                    option = "attainment" if field.name == "attainment" else f"sweep-{field.name}"
                    yield f"--{option} is of a sweep: give --sweep rates, users or slo as well"
        elif self.of is SweepChoice.slo:
            if self.levels is not None:
                yield "--sweep-levels: the search for --slo chooses its rates; leave it out"
        elif self.precision is not None:
            yield "--sweep-precision is of the search: --sweep slo"
        if self.budget is not None:
            self.stopping_rule()
        if self.attainment is not None and not 0 < self.attainment < 1:
            yield f"--attainment {self.attainment:g}: must be above 0 and below 1, such as 0.99"


NO_SWEEP = LevelSweepOptions()


def require_slo(sweep: LevelSweepOptions, slo: str | None) -> None:
    """Raise ``LoadTestError`` where the sweep needs an SLO that is not given."""
    if slo is None and (sweep.of is SweepChoice.slo or sweep.attainment is not None):
        option = "--sweep slo" if sweep.of is SweepChoice.slo else "--attainment"
        raise LoadTestError(f"{option}: give --slo as well, such as ttft=500ms,tpot=50ms")


def require_one_load_test(options: Mapping[str, object]) -> None:
    """Raise ``LoadTestError`` for an option of a single load test, which stands beside a sweep."""
    for name in (name for name, value in options.items() if value):
        raise LoadTestError(
            f"{name} and --sweep exclude each other: {name} is of one load test, and a sweep has "
            "one for each level"
        )


def require_sweep(options: Mapping[str, object]) -> None:
    """Raise ``LoadTestError`` for an option of the prediction that only a sweep has."""
    for name in (name for name, value in options.items() if value):
        raise LoadTestError(
            f"{name}: predicts the levels of --sweep; --against RUN compares one load test with a "
            "prediction"
        )
