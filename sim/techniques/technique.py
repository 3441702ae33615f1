"""The base of every acceleration technique: a change of a setup, with its formula and its price."""

from abc import abstractmethod
from typing import ClassVar, Literal

from pydantic import field_validator

from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.catalogue.frozen_model import FrozenModel
from servetwin.sim.catalogue.mixers import Recurrence
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.techniques.experiment import Experiment
from servetwin.sim.techniques.setup import Setup
from servetwin.workloads.errors import PolicyError, ShapeError

_MOST_COUNT, _MOST_QUANTITY = 10_000_000, 1e9
"""Of whole and of other parameters: what is more only overflows."""

Family = Literal["numbers", "attention", "kernels", "parallel", "decoding", "serving", "memory"]


class Technique(FrozenModel):
    """One technique; its fields are its parameters, validated when it is built.

    ``kind``: an ``algorithm`` changes the model, a ``system`` technique keeps the model's answers.
    ``lossless``: the output tokens stay the same, up to rounding. By default a technique is a lossy
    algorithm; ``sim.techniques.quality`` has what that costs. ``formula`` is the core of the model
    of the technique, ``source`` the paper.
    ``experiment`` is the load that shows the effect of the technique where the default load does
    not. ``chooses`` names what of a server the technique chooses: two that choose the same exclude
    each other.
    """

    name: ClassVar[str]
    family: ClassVar[Family]
    kind: ClassVar[Literal["algorithm", "system"]] = "algorithm"
    lossless: ClassVar[bool] = False
    formula: ClassVar[str]
    source: ClassVar[str]
    experiment: ClassVar[Experiment | None] = None
    chooses: ClassVar[str | None] = None

    @field_validator("*")
    @classmethod
    def _require_possible(cls, value: object) -> object:
        """Refuse a number beyond all that is simulated."""
        most = _MOST_COUNT if isinstance(value, int) else _MOST_QUANTITY
        if isinstance(value, int | float) and value > most:
            raise ValueError(f"{value} is not possible; it must be at most {most:,.0f}")
        return value

    @abstractmethod
    def apply(self, setup: Setup) -> Setup:
        """Return ``setup`` with the technique on; one that has it already stays as it is.

        Raises ``PolicyError`` with the reason where the technique makes no sense there.
        """

    def off(self, setup: Setup) -> Setup:
        """Return ``setup`` with the opposite of the technique, which ``apply`` is compared with.

        By default ``setup`` itself: it has the technique only where ``apply`` gave it.
        """
        return setup

    def is_on(self, setup: Setup) -> bool:
        """Return whether ``setup`` has the technique, with the parameters that were given."""
        try:
            return self.apply(setup) == setup
        except PolicyError:
            return False

    def sides(self, base: Setup) -> tuple[Setup, Setup]:
        """Return ``base`` without the technique and with it: what every command compares.

        Raises ``PolicyError`` as ``apply`` and ``off`` do.
        """
        return self.off(base), self.apply(base)

    def note(self, setup: Setup) -> str:
        """Return what a user should know of the technique on ``setup``; empty where nothing is."""
        del setup
        return ""

    def is_given(self, parameter: str) -> bool:
        """Return whether the parameter was given, and not left at its default."""
        return parameter in self.model_fields_set

    def model_of(self, parameter: str) -> ModelShape:
        """Return the model that a parameter names; raise ``ShapeError`` that names both."""
        try:
            return find_model(getattr(self, parameter))
        except ShapeError as error:
            raise ShapeError(f"technique {self.name}: {parameter}: {error}") from error

    def refusal(self, reason: str) -> PolicyError:
        """Return the error that says why the technique makes no sense in a setup."""
        return PolicyError(f"{self.name}: {reason}")

    def require_softmax(self, setup: Setup) -> None:
        """Raise ``PolicyError`` where all layers of the model keep a constant state."""
        model = setup.deployment.model
        if all(isinstance(group.mixer, Recurrence) for group in model.layers):
            raise self.refusal(f"{model.name} has no softmax attention, only recurrent layers")
