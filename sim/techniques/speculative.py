"""Speculative decoding: a small model proposes a few tokens, the target verifies them at once."""

from sim.shapes.part import Count, Share
from sim.step_times.acceptance import Chain
from sim.techniques.draft_model import DraftModelDecoding
from sim.techniques.setup import Setup


class SpeculativeDecoding(DraftModelDecoding):
    """``drafts`` tokens in a row, each accepted with probability ``alpha`` if those before were."""

    name = "speculative"
    formula = "(1 - a^(g + 1)) / (1 - a) tokens in g t_draft + t_verify(g + 1)"
    source = "Leviathan 2023; Chen 2023"

    alpha: Share = 0.7
    drafts: Count = 4

    def apply(self, setup: Setup) -> Setup:
        """With drafts; refused where the draft model does not fit the target."""
        drafting = self._drafting(setup, (1,) * self.drafts)
        return self._passing(setup, Chain(self.alpha, self.drafts), drafting)
