"""Options of a black-box calibration, which sees only what clients see."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from typer import Option


@dataclass(frozen=True, slots=True)
class BlackBoxOptions:
    """How much a black-box calibration may cost."""

    PANEL: ClassVar = "Endpoint"

    max_minutes: Annotated[float, Option(min=0.1)] = 5.0
    """Minutes that a black-box calibration may take."""
    max_requests: Annotated[int, Option(min=20)] = 400
    """Requests that a black-box calibration may send."""
