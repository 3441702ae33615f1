"""Options that give measured times of a model on a device, as tables."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from typer import Option

from servetwin.workloads.errors import PolicyError
from servetwin.workloads.key_values import key_value

_FORMATS = ("operators", "phases", "layers", "kernels")


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Measured times of a model's operators, phases, layers or kernels."""

    PANEL: ClassVar = "Tables"

    operators: Annotated[tuple[Path, Path] | None, Option(metavar="MLP ATTENTION")] = None
    """Operator times of that model: two CSV files in Vidur's columns."""
    phases: Annotated[Path | None, Option()] = None
    """TTFT and TBT tables in Splitwise's columns."""
    where: Annotated[tuple[str, ...], Option(metavar="COLUMN=VALUE")] = ()
    """Which rows of the tables."""
    layers: Annotated[Path | None, Option(metavar="DIR")] = None
    """Layer times of that model on a GPU: a bundle as LLMServingSim measures it through vLLM."""
    imbalance: Annotated[float, Option(min=1)] = 1.0
    """Of layers: pairs that the busiest device of experts gets, over their mean (1 / vLLM's
    balancedness)."""
    kernels: Annotated[str | None, Option(metavar="BACKEND")] = None
    """NVIDIA's kernel tables of that model and device under vllm, sglang or trtllm."""
    overheads: Annotated[str | None, Option(metavar="fitted|NAME=VALUE,...")] = None
    """What the server adds to kernels or layers: seconds by term, or as fitted for a backend."""

    @property
    def given(self) -> str | None:
        """The option that names a table, or None."""
        return next((name for name in _FORMATS if getattr(self, name) is not None), None)

    @property
    def sources(self) -> list[str]:
        """The files or folders of the tables, or the backend of kernel tables."""
        tables = [*(self.operators or ()), self.phases, self.layers]
        paths = [str(path) for path in tables if path is not None]
        return [*paths, *([f"kernels of {self.kernels}"] if self.kernels else [])]

    def check(self) -> None:
        """Raise ``PolicyError`` for options that do not go together."""
        named = [name for name in _FORMATS if getattr(self, name) is not None]
        if len(named) > 1:
            raise PolicyError(f"--{named[1]}: either --{named[0]} or --{named[1]}, not both")
        if self.imbalance != 1 and self.layers is None:
            raise PolicyError("--imbalance: goes with --layers")
        if self.where and self.operators is None and self.phases is None:
            raise PolicyError("--where: chooses rows of --operators or --phases")
        if self.overheads is not None and self.kernels is None and self.layers is None:
            raise PolicyError("--overheads: goes with --kernels or --layers")

    def rows(self) -> dict[str, str]:
        """Return the values of columns that choose rows."""
        return dict(key_value(text, "--where", form="COLUMN=VALUE") for text in self.where)
