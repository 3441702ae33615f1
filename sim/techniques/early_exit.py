"""Early exit: a token leaves the layers as soon as a classifier is confident of it."""

from math import isclose
from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from sim.shapes.part import Share
from sim.step_times.roofline.deployment import EarlyExit
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique
from sim.techniques.x_list import split_x
from workloads.errors import PolicyError

Depth = Annotated[float, Field(gt=0, le=1)]


class EarlyExitDecoding(Technique):
    """A decode leaves after ``depths`` of the layers, with probabilities ``shares``.

    ``depths=0.5x1,shares=0.75x0.25`` on a command line. Prompts go through all layers; those that
    a token skipped get its keys and values all the same.
    """

    name = "early-exit"
    family = "decoding"
    kind = "algorithm"
    lossless = False
    formula = "FLOPs x E[depth]; weights are read as deep as the deepest token of the step"
    source = "CALM (Schuster 2022)"

    depths: Annotated[tuple[Depth, ...], BeforeValidator(split_x)] = (0.5, 1.0)
    shares: Annotated[tuple[Share, ...], BeforeValidator(split_x)] = (0.75, 0.25)

    @model_validator(mode="after")
    def _every_token_leaves_somewhere(self) -> "EarlyExitDecoding":
        if len(self.depths) != len(self.shares):
            raise ValueError(f"{len(self.depths)} depths, but {len(self.shares)} shares")
        if not isclose(sum(self.shares), 1, abs_tol=1e-9):
            raise ValueError(f"shares sum to {sum(self.shares):g}; every token leaves once: 1")
        return self

    @property
    def law(self) -> EarlyExit:
        """Where tokens leave."""
        return EarlyExit(tuple(zip(self.depths, self.shares, strict=True)))

    def apply(self, setup: Setup) -> Setup:
        """With exits; refused beside decodes that verify drafts."""
        if setup.acceptance is not None:
            raise PolicyError(f"{self.name}: not modelled together with passes of several tokens")
        return setup.with_deployment(early_exit=self.law)


def most_gain(law: EarlyExit) -> float:
    """What exits can gain at most, all time being spent in layers: L / E[layers]."""
    return 1 / law.mean_depth()
