"""Options of a calibration from outside, which sees only what clients see."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import typer


@dataclass(frozen=True, slots=True)
class BlackBoxOptions:
    """How much a calibration from outside may cost."""

    PANEL: ClassVar = "Endpoint"

    max_minutes: Annotated[
        float, typer.Option(help="Minutes that a calibration from outside may take.", min=0.1)
    ] = 5.0
    max_requests: Annotated[
        int, typer.Option(help="Requests that a calibration from outside may send.", min=20)
    ] = 400
