"""Single options that several commands share."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

TRACE = Argument(help="Any known trace: a file, or a WEKA directory.")
TracePath = Annotated[Path, TRACE]
SLO = Option(help="Such as ttft=500ms,tpot=50ms,e2e=2s.")
Attainment = Annotated[float, Option(help="Share of the requests that must meet the SLO.")]
Seed = Annotated[int, Option(help="Seed of every random stream.")]
RunFolder = Annotated[Path | None, Option(help="Run folder to write.")]
Json = Annotated[bool, Option("--json", help="One JSON object on stdout.")]
