"""How the devices of a server share a model: the widths of each kind of parallelism."""

from dataclasses import dataclass, fields
from typing import Self

from servetwin.workloads.errors import PolicyError
from servetwin.workloads.program.key_values import key_values

OPTION = "--layout"


@dataclass(frozen=True, slots=True)
class Layout:
    """Widths: ``tp`` of attention and dense products, ``pp`` of stages, ``dp`` of attention ranks.

    Each of the ``dp`` ranks serves sequences of its own. The experts of a layer lie on all ``tp *
    dp`` devices of a stage: ``ep`` groups have whole experts of their own, and ``moe_tp`` devices
    share each (vLLM with expert parallel: ``ep`` is ``tp * dp``; without: 1).

    Raises ``PolicyError`` for a width that is below 1 or does not divide.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise PolicyError(f"{OPTION}: {field.name}={getattr(self, field.name)}; 1 or more")
        if self.stage_devices % self.ep:
            raise PolicyError(
                f"{OPTION}: ep={self.ep} does not divide tp x dp = {self.stage_devices}; "
                f"give ep={self.stage_devices}, or 1"
            )

    @property
    def stage_devices(self) -> int:
        """Devices of one pipeline stage."""
        return self.tp * self.dp

    @property
    def moe_tp(self) -> int:
        """Devices that share each expert."""
        return self.stage_devices // self.ep

    @property
    def devices(self) -> int:
        """Devices in all."""
        return self.stage_devices * self.pp

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the layout that ``tp=8,ep=8`` stands for.

        ``moe_tp`` may stand beside or in place of ``ep``; the two must agree with ``tp * dp``.

        Raises ``PolicyError`` that names the width and what would be right.
        """
        form = "NAME=WIDTH, such as tp=8,ep=8"
        given = key_values(text.lower(), OPTION, PolicyError, form=form)
        widths = {name: _width(name, value) for name, value in given.items()}
        moe_tp = widths.pop("moe_tp", None)
        if unknown := widths.keys() - {field.name for field in fields(cls)}:
            raise PolicyError(f"{OPTION}: no width {min(unknown)!r}; tp, pp, dp, ep, moe_tp")
        layout = cls(**widths)
        if moe_tp is None or moe_tp == layout.moe_tp:
            return layout
        if "ep" not in widths and not layout.stage_devices % moe_tp:
            return cls(**widths, ep=layout.stage_devices // moe_tp)
        raise PolicyError(
            f"{OPTION}: moe_tp={moe_tp} x ep={layout.ep} must be tp x dp = {layout.stage_devices}"
        )

    def __str__(self) -> str:
        """Return the widths that are not 1, as they are given."""
        widths = ((field.name, getattr(self, field.name)) for field in fields(self))
        return ",".join(f"{name}={width}" for name, width in widths if width > 1) or "tp=1"


def _width(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise PolicyError(f"{OPTION}: {name}={value}: not a whole number; 1 or more") from None
