"""Options of the picture that a command draws beside its report."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from typer import Option

if TYPE_CHECKING:
    from servetwin.app.reports.pictures.picture_file import PictureFile


class RunChart(StrEnum):
    """A chart of one run, or of several beside each other."""

    ttft = "ttft"
    tpot = "tpot"
    e2e = "e2e"
    ttft_over_time = "ttft-over-time"
    tpot_over_time = "tpot-over-time"
    throughput = "throughput"
    server = "server"
    requests = "requests"


@dataclass(frozen=True, slots=True)
class PictureOptions:
    """A chart as a file, at the size of a talk."""

    PANEL: ClassVar = "Picture"

    plot: Annotated[Path | None, Option(metavar="FILE")] = None
    """Also draw a chart: .svg or .png (with kaleido and Chrome), or .html (with neither)."""
    chart: Annotated[RunChart | None, Option()] = None
    """What the picture shows: the distribution of TTFT, unless named."""
    dark: Annotated[bool, Option("--dark")] = False
    """Draw on a dark page rather than on a white one."""

    def file(self, *, overwrite: bool, runs: int) -> "PictureFile | None":
        """Return where to draw so many runs, None without ``--plot``.

        Raises ``PictureError`` for what cannot be drawn, before any work.
        """
        from servetwin.app.reports.pictures.picture_file import PictureError, PictureFile

        if self.plot is None:
            given = {"--chart": self.chart is not None, "--dark": self.dark}
            if alone := [option for option, is_given in given.items() if is_given]:
                raise PictureError(f"{alone[0]}: goes with --plot")
            return None
        if self.chart is RunChart.requests and runs > 1:
            raise PictureError(f"--chart {self.chart}: shows one run, and there are {runs}")
        return PictureFile.checked(self.plot, dark=self.dark, overwrite=overwrite)
