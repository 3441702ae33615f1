"""Tree speculation: several proposals at each place, all verified in one masked pass."""

from itertools import accumulate
from operator import mul
from typing import Annotated

from pydantic import BeforeValidator, Field

from sim.shapes.part import Count, Share
from sim.step_times.acceptance import Tree
from sim.techniques.draft_model import DraftModelDecoding
from sim.techniques.setup import Setup
from sim.techniques.x_list import split_x


class TreeSpeculation(DraftModelDecoding):
    """``widths`` proposals below each token of a level: ``3x2x1x1`` is 3 + 6 + 6 + 6 of them.

    A proposal is right with probability ``alpha`` whatever its siblings are, which is optimistic.
    """

    name = "tree-speculation"
    formula = "1 + sum over levels of prod (1 - (1 - a)^w) tokens; all nodes are verified"
    source = "SpecInfer (Miao 2024)"

    alpha: Share = 0.6
    widths: Annotated[tuple[Count, ...], BeforeValidator(split_x), Field(min_length=1)] = (
        3, 2, 1, 1
    )  # fmt: skip

    def apply(self, setup: Setup) -> Setup:
        """With a tree of drafts; refused where the draft model does not fit the target."""
        step_rows = (1, *accumulate(self.widths[:-1], mul))  # a level is drafted from the one above
        drafting = self._drafting(setup, step_rows)
        return self._passing(setup, Tree(self.alpha, self.widths), drafting)
