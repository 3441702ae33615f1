"""Options that say where the times of a model's steps come from."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Option

from servetwin.workloads.errors import PolicyError, did_you_mean
from servetwin.workloads.program.key_values import key_values

FORMS = "kernels|layers:DIR|operators:MLP,ATTENTION|phases:FILE|sheet"
# The files of each kind of evidence.
_FILES = {"kernels": 0, "layers": 1, "operators": 2, "phases": 1, "sheet": 0}


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Where step times come from: measured tables, or data sheets."""

    times: Annotated[str | None, Option(metavar=FORMS)] = None
    """NVIDIA's kernel tables, layers as LLMServingSim measures them, operators in Vidur's columns,
    phases in Splitwise's, or data sheets. Default: kernel tables where they have the model and
    device, else data sheets."""
    where: Annotated[tuple[str, ...], Option(metavar="COLUMN=VALUE")] = ()
    """Which rows of the tables."""
    imbalance: Annotated[float, Option(min=1)] = 1.0
    """Of layers: pairs that the busiest device of experts gets, over their mean (1 / vLLM's
    balancedness)."""
    overheads: Annotated[str | None, Option(metavar="fitted|NAME=VALUE,...")] = None
    """What the server adds to kernels or layers: seconds by term, or as fitted for a backend."""

    @property
    def kind(self) -> str | None:
        """The kind of evidence, or None where it is not chosen."""
        return None if self.times is None else self.times.partition(":")[0]

    @property
    def given(self) -> str | None:
        """The kind of measured tables, or None."""
        return None if self.kind == "sheet" else self.kind

    @property
    def backend(self) -> str | None:
        """The backend of ``kernels:BACKEND``, or None."""
        return (self.times or "").partition(":")[2] or None if self.kind == "kernels" else None

    @property
    def files(self) -> tuple[Path, ...]:
        """The files or folders of the tables."""
        names = (self.times or "").partition(":")[2].split(",")
        return () if self.kind == "kernels" else tuple(Path(name) for name in names if name)

    def check(self) -> None:
        """Raise ``PolicyError`` for options that do not go together."""
        if self.times is not None:
            if self.kind not in _FILES:
                hint = did_you_mean(str(self.kind), _FILES)
                raise PolicyError(f"--times: unknown {self.kind!r}; {hint} (give {FORMS})")
            if len(self.files) != _FILES[self.kind]:
                raise PolicyError(f"--times: {self.times!r} is none of {FORMS}")
        if self.imbalance != 1 and self.kind != "layers":
            raise PolicyError("--imbalance: goes with --times layers:DIR")
        if self.where and self.kind not in ("operators", "phases"):
            raise PolicyError("--where: chooses rows of --times operators:... or phases:...")
        if self.overheads is not None and self.kind not in ("kernels", "layers"):
            raise PolicyError("--overheads: goes with --times kernels or layers:DIR")

    def rows(self) -> dict[str, str]:
        """Return the values of columns that choose rows."""
        return key_values(self.where, "--where", form="COLUMN=VALUE")
