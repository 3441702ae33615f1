"""What every technique of acceleration is: a change of a setup, with its formula and its price."""

from abc import abstractmethod
from typing import ClassVar, Literal

from sim.shapes.part import Part
from sim.techniques.experiment import Experiment
from sim.techniques.setup import Setup

Family = Literal["numbers", "attention", "kernels", "parallel", "decoding", "serving", "memory"]


class Technique(Part):
    """One technique; its fields are its parameters, checked as they are read.

    ``kind``: an ``algorithm`` changes the model, a ``system`` technique keeps its answers' meaning.
    ``lossless``: the same tokens come out, to rounding. What a lossy one costs in quality is a
    question to one's own task; nothing here computes it. ``formula`` is the core of its model,
    ``source`` the paper.
    """

    name: ClassVar[str]
    family: ClassVar[Family]
    kind: ClassVar[Literal["algorithm", "system"]]
    lossless: ClassVar[bool]
    formula: ClassVar[str]
    source: ClassVar[str]
    experiment: ClassVar[Experiment | None] = None
    """A load of its own, where the usual one would not show what it does."""

    @abstractmethod
    def apply(self, setup: Setup) -> Setup:
        """The setup with the technique on.

        Raises ``PolicyError`` with the reason where it makes no sense there.
        """

    def off(self, setup: Setup) -> Setup:
        """The setup to compare with: without the technique."""
        return setup
