"""Options that several commands share: single ones, and those of a gate."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from typer import Argument, Option

if TYPE_CHECKING:
    from loadtest.report.fail_conditions import FailCondition

TRACE = Argument(help="Any known trace: a file, or a WEKA directory.")
TracePath = Annotated[Path, TRACE]
SLO = Option(help="Such as ttft=500ms,tpot=50ms,e2e=2s.")
Attainment = Annotated[float, Option(help="Share of the requests that must meet the SLO.")]
Seed = Annotated[int, Option(help="Seed of every random stream.")]
RunFolder = Annotated[Path | None, Option(help="Run folder to write.")]
Recorded = Annotated[
    Path | None,
    Option(
        metavar="RUN",
        help="Instead of a live endpoint: a run folder of loadtest import, or of a load test.",
    ),
]
Json = Annotated[bool, Option("--json", help="One JSON object on stdout.")]


@dataclass(frozen=True, slots=True)
class GateOptions:
    """The runs of a baseline, the limits of the gate, and what fails a load test in any case."""

    PANEL: ClassVar = "Gate"

    baseline: Annotated[
        tuple[Path, ...],
        Option(metavar="RUN", help="A run of the baseline, or a folder of several; repeatable."),
    ] = ()
    allow: Annotated[
        str | None,
        Option(
            metavar="METRIC=SHARE,...",
            help="How much worse a metric may be; default "
            "throughput=3%,tpot=5%,ttft=10%,ttft.p90=10%,finished=1%.",
        ),
    ] = None

    fail_if: Annotated[
        tuple[str, ...],
        Option(
            metavar="METRIC>LIMIT",
            help="Exit with 1 where it is so: 'failed>1%', 'ttft_p99>500ms', 'slo_attainment<99%'; "
            "repeatable; default 'failed>10%'.",
        ),
    ] = ()

    def limits(self) -> Mapping[str, float]:
        """Return the limits by metric; raises ``LoadTestError`` where they cannot be read."""
        from loadtest.report.gate import GATE_LIMITS, parse_limits

        return GATE_LIMITS if self.allow is None else parse_limits(self.allow)

    def fail_conditions(self, slo: str | None) -> "list[FailCondition]":
        """Return what fails a load test; raises ``LoadTestError`` where it cannot be read."""
        from loadtest.report.fail_conditions import parse_conditions

        return parse_conditions(self.fail_if, slo=slo is not None)
