"""Options of the bundled engine."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated, ClassVar

from typer import Option

from workloads.errors import EngineError


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """Which bundled engine to start; commands set ``model`` and ``seed``."""

    PANEL: ClassVar = "Engine"

    model: str = "base"
    device: Annotated[str, Option()] = "auto"
    """auto, cpu or cuda."""
    dtype: Annotated[str, Option()] = "auto"
    """auto, float32 or bfloat16."""
    threads: Annotated[int, Option(min=1)] = 1
    """Torch threads."""
    seed: int = 0


def require_engine() -> None:
    """Raise ``EngineError`` with the way to install what is missing of the engine's packages."""
    missing = [n for n in ("torch", "starlette", "uvicorn") if find_spec(n) is None]
    if missing:
        names = ", ".join(missing)
        raise EngineError(f"the bundled engine needs {names}: pip install 'servetwin[engine]'")
