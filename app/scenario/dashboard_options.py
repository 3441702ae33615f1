"""Options of ``servetwin dashboard``: what it offers beside the shipped names."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from typer import Option


@dataclass(frozen=True, slots=True)
class Additions:
    """Profiles, schedulers and memories beside the shipped ones, and the folder of kept runs."""

    profiles: Annotated[tuple[Path, ...], Option("--profile")] = ()
    """Also offer this profile (.json); repeatable."""
    batching: Annotated[tuple[str, ...], Option()] = ()
    """Also offer this scheduler (path.py:Class)."""
    kv: Annotated[tuple[str, ...], Option()] = ()
    """Also offer this KV memory (path.py:Class)."""
    runs: Annotated[Path, Option()] = Path("runs")
    """Folder in which runs are kept."""

    def as_argument(self) -> str:
        """Return the additions as the dashboard's script takes them."""
        return json.dumps(asdict(self), default=str)
