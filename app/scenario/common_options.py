"""Single options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

TRACE = typer.Argument(help="Any known trace: a file, or a WEKA directory.")
TracePath = Annotated[Path, TRACE]
SLO = typer.Option(help="Such as ttft=500ms,tpot=50ms,e2e=2s.")
Attainment = Annotated[float, typer.Option(help="Share of the requests that must meet the SLO.")]
Seed = Annotated[int, typer.Option(help="Seed of every random stream.")]
RunFolder = Annotated[Path | None, typer.Option(help="Run folder to write.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
